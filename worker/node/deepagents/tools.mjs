// Stands between the graph and its tools: lets calls wait for a person, says when a call begins and ends, makes failures
// of tools honest, and lets only those errors end the turn that must.
import { isGraphBubbleUp } from "@langchain/langgraph";
import { createMiddleware, ToolMessage } from "langchain";
import { WITHOUT_EFFECTS, askApproval } from "./approval.mjs";
import { runAs } from "./calls.mjs";
import { TURN } from "./checkpoints.mjs";
import { UNKNOWN, askedBy } from "./effects.mjs";
import { isModelFailure } from "./failures.mjs";
import { observeFiles } from "./workspace.mjs";

/** Types of the custom stream parts that this middleware writes. */
export const TOOL_STARTED = "tool_started";
export const TOOL_ENDED = "tool_ended";

/**
 * The guard. It must be in the middleware of every agent of the graph, also of delegated ones.
 *
 * LangChain has a middleware for approval of its own. It is not used: it drops approved calls without a word where one
 * of their neighbours is rejected, and tells the id of no call.
 * @param {string} approval policy
 * @param {import("./effects.mjs").Effects} effects
 * @returns {import("langchain").AgentMiddleware}
 */
export function toolGuard(approval, effects) {
  return createMiddleware({
    name: "harnessToolGuard",
    wrapToolCall: async (request, handler) => {
      const { runtime } = request;
      const { id, name } = request.toolCall;
      const tell = (type, fields) => runtime.writer?.({ type, toolCallId: id, name, ...fields });
      const { verdict, arguments: edited, message: reason } = askApproval(approval, request) ?? {};
      if (verdict === "reject") {
        const content = rejection(reason);
        tell(TOOL_ENDED, { failed: true, rejected: true, content });
        return new ToolMessage({ content, tool_call_id: id, name, status: "error" });
      }
      const args = edited ?? request.toolCall.args;
      tell(TOOL_STARTED, { args, edited: edited !== undefined, task: lastSegment(runtime.configurable?.checkpoint_ns) });
      const { result, unknown } = await once({ ...request, toolCall: { ...request.toolCall, args } }, handler, effects);
      const message = messageOf(result, id);
      tell(TOOL_ENDED, { failed: message?.status === "error", unknown, content: message?.content ?? "" });
      if (edited !== undefined && message) message.content = explained(message.content, edited);
      return result;
    },
  });
}

/** What the model reads of a rejected call. */
const rejection = (reason) => `The person rejected this call. It did not run.${reason ? ` They said: ${reason}` : ""}`;

/**
 * What the model reads of an edited call: its own words stay in the conversation as they were, so the result has to say
 * what ran.
 */
function explained(content, args) {
  const note = `[The person changed the arguments of this call before it ran, to ${JSON.stringify(args)}]`;
  return typeof content === "string" ? `${note}\n${content}` : [{ type: "text", text: note }, ...content];
}

/**
 * Runs a call that may have effects at most once, also when the graph asks for it again.
 * @returns {Promise<{result: object, unknown?: boolean}>} unknown: nobody can tell what became of it
 */
async function once(request, handler, effects) {
  const { toolCall, runtime, state } = request;
  const { id, name } = toolCall;
  if (WITHOUT_EFFECTS.has(name)) return { result: await attempt(request, handler) };
  const { thread_id: session, [TURN]: turn } = runtime.configurable;
  const message = askedBy(state?.messages, id);
  const before = await effects.outcome(session, message, id);
  if (before) {
    const { content, failed } = before.result ?? { content: UNKNOWN, failed: true };
    return { result: new ToolMessage({ content, tool_call_id: id, name, ...(failed && { status: "error" }) }), unknown: !before.result };
  }
  await effects.intend(session, turn, message, id);
  const result = await attempt(request, handler);
  // Of a command that changes more of the state than the conversation, the message alone would be half of the result.
  const kept = ToolMessage.isInstance(result) || Object.keys(result?.update ?? {}).every((key) => key === "messages") ? messageOf(result, id) : undefined;
  if (kept) await effects.note(session, turn, message, id, { content: kept.content, failed: kept.status === "error" });
  return { result };
}

async function attempt(request, handler) {
  const { toolCall, runtime } = request;
  try {
    const { value, failed } = await observeFiles(() => runAs(toolCall.id, () => handler(request)));
    if (failed && ToolMessage.isInstance(value)) value.status = "error";
    return value;
  } catch (error) {
    // An interrupt, a cancelled turn and a failed model of a delegated agent are not results of a tool.
    if (isGraphBubbleUp(error) || runtime.signal?.aborted || isModelFailure(error)) throw error;
    return new ToolMessage({ content: safeText(error), tool_call_id: toolCall.id, name: toolCall.name, status: "error" });
  }
}

/** The tool's message in a result, which may be a command that updates the state. */
function messageOf(result, toolCallId) {
  if (ToolMessage.isInstance(result)) return result;
  return result?.update?.messages?.find((message) => ToolMessage.isInstance(message) && message.tool_call_id === toolCallId);
}

/** What the model may know of an error: its message without a stack, which holds paths of the host. */
function safeText(error) {
  // A refused input carries the original error beside a message made of its stack.
  const text = String((error?.toolError ?? error)?.message ?? error);
  const lines = text.split("\n").filter((line) => !/^\s+at .*(:\d+:\d+\)?|<anonymous>\)?)$/.test(line));
  return `Error: ${lines.join("\n").trim()}`;
}

const lastSegment = (namespace) => namespace?.split("|").at(-1);
