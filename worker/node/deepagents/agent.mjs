// The agent's side of the Agent Client Protocol, version 1.
import path from "node:path";
import * as acp from "@agentclientprotocol/sdk";
import { InvalidConstructionError, META, parseConstruction } from "./construction.mjs";
import { classify } from "./failures.mjs";
import { InterruptLostError } from "./interrupts.mjs";
import { parsePrompt } from "./prompt.mjs";
import { SessionStateError, UnknownSessionError } from "./sessions.mjs";

/** Extension notification with the tokens of the turn so far; the protocol has none. */
const USAGE = `_${META}/usage`;

/** JSON-RPC and ACP error codes. */
const INVALID_REQUEST = -32600;
const INVALID_PARAMS = -32602;
const INTERNAL = -32603;
const NOT_FOUND = -32002;

/**
 * Makes the agent; connect it to a stream to serve it.
 * @param {object} options
 * @param {import("./sessions.mjs").Sessions} options.sessions
 * @param {string} options.version of deepagents
 * @param {(error: Error) => void} options.log takes what must not leave this process
 */
export function makeAgent({ sessions, version, log }) {
  const open = (params) => [workspaceOf(params), parseConstruction(params._meta?.[META]?.construction)];
  const guard = (work) => async (context) => {
    try {
      return await work(context);
    } catch (error) {
      throw toRequestError(error, log);
    }
  };
  return acp
    .agent({ name: "deepagents" })
    .onRequest("initialize", () => ({
      protocolVersion: 1,
      agentInfo: { name: "deepagents", title: "Deep Agents", version },
      agentCapabilities: {
        loadSession: false,
        promptCapabilities: { image: true, audio: false, embeddedContext: true },
        sessionCapabilities: { resume: {}, close: {} },
      },
      authMethods: [],
    }))
    .onRequest(
      "session/new",
      guard(async ({ params }) => ({ sessionId: await sessions.create(...open(params)) })),
    )
    .onRequest(
      "session/resume",
      guard(async ({ params }) => {
        await sessions.resume(params.sessionId, ...open(params));
        return {};
      }),
    )
    .onRequest(
      "session/prompt",
      guard(async ({ params, client, signal }) => {
        const { sessionId } = params;
        const send = (update) =>
          update.usage ? client.notify(USAGE, { sessionId, usage: update.usage }) : client.notify("session/update", { sessionId, update });
        return sessions.prompt(sessionId, parsePrompt(params), { send, signal });
      }),
    )
    .onRequest(
      "session/close",
      guard(({ params }) => {
        sessions.close(params.sessionId);
        return {};
      }),
    )
    .onNotification("session/cancel", ({ params }) => sessions.cancel(params.sessionId));
}

function workspaceOf({ cwd }) {
  if (!path.isAbsolute(cwd) || cwd.length > 4096) throw new InvalidConstructionError("cwd", "must be an absolute path");
  return cwd;
}

/** The error as the other side may see it. `data` carries the class that JSON-RPC codes cannot express. */
function toRequestError(error, log) {
  if (error instanceof InvalidConstructionError) {
    return new acp.RequestError(INVALID_PARAMS, error.message, { category: "configuration", code: "invalid_input", field: error.field, retryable: false });
  }
  if (error instanceof UnknownSessionError) {
    return new acp.RequestError(NOT_FOUND, error.message, { category: "persistence", code: "session_not_found", retryable: false });
  }
  if (error instanceof SessionStateError) {
    return new acp.RequestError(INVALID_REQUEST, error.message, { category: "protocol", code: error.code, retryable: false });
  }
  if (error instanceof InterruptLostError) {
    return new acp.RequestError(INVALID_REQUEST, error.message, { category: "unavailable", code: "interrupt_lost", retryable: false });
  }
  log(error);
  const { message, ...data } = classify(error);
  return new acp.RequestError(INTERNAL, message, data);
}
