// Stands between the graph and its tools: says when a call begins and ends, makes failures of tools honest, and lets
// only those errors end the turn that must.
import { isGraphBubbleUp } from "@langchain/langgraph";
import { createMiddleware, ToolMessage } from "langchain";
import { isModelFailure } from "./failures.mjs";
import { observeFiles } from "./workspace.mjs";

/** Types of the custom stream parts that this middleware writes. */
export const TOOL_STARTED = "tool_started";
export const TOOL_ENDED = "tool_ended";

/**
 * The guard. It must be in the middleware of every agent of the graph, also of delegated ones.
 * @returns {import("langchain").AgentMiddleware}
 */
export function toolGuard() {
  return createMiddleware({
    name: "harnessToolGuard",
    wrapToolCall: async (request, handler) => {
      const { toolCall, runtime } = request;
      const tell = (type, fields) => runtime.writer?.({ type, toolCallId: toolCall.id, name: toolCall.name, ...fields });
      tell(TOOL_STARTED, { args: toolCall.args, task: lastSegment(runtime.configurable?.checkpoint_ns) });
      const result = await attempt(request, handler);
      const message = messageOf(result, toolCall.id);
      tell(TOOL_ENDED, { failed: message?.status === "error", content: message?.content ?? "" });
      return result;
    },
  });
}

async function attempt(request, handler) {
  const { toolCall, runtime } = request;
  try {
    const { value, failed } = await observeFiles(() => handler(request));
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
