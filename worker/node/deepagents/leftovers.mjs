// What a turn left unfinished when the person goes on with another message: it was interrupted, cancelled, or its process
// died. LangGraph would forget the results of calls that had ended beside one that had not, and the library would say
// of every open call that it was cancelled.
import { ToolMessage } from "langchain";
import { AIMessage } from "@langchain/core/messages";
import { TOOL_APPROVAL } from "./approval.mjs";
import { UNKNOWN } from "./effects.mjs";

/** What the model reads of a call that waited for a person, who wrote something else. */
const PASSED_OVER = "The person did not decide on this call and sent another message instead. It did not run.";
const NOT_ANSWERED = "The person did not fill in the form and sent another message instead.";

/** Channels of the graph's state that a message may be given with. */
const STATE = ["todos"];

/** Whether every call that the conversation asks for has its result in it. */
export function isAtRest({ messages }) {
  const last = messages.at(-1);
  return !(AIMessage.isInstance(last) && last.tool_calls?.length > 0);
}

/**
 * @param {Awaited<ReturnType<import("./checkpoints.mjs").FileSaver["unfinished"]>>} unfinished
 * @param {(message: string, toolCallId: string) => Promise<import("./effects.mjs").Outcome | undefined>} outcomeOf
 * @returns {Promise<{messages: ToolMessage[], state: object, givenUp: {toolCallId: string, name: string, content: string}[]}>}
 *   results that precede the person's next message; state that finished calls had changed; calls that will not run
 */
export async function leftovers({ messages, interrupts, writes }, outcomeOf) {
  const last = messages.at(-1);
  if (isAtRest({ messages })) return { messages: [], state: {}, givenUp: [] };
  const done = new Map();
  for (const message of writes.filter(([, channel]) => channel === "messages").flatMap(([, , value]) => value)) {
    if (ToolMessage.isInstance(message)) done.set(message.tool_call_id, message);
  }
  const state = {};
  for (const [, channel, value] of writes) if (STATE.includes(channel)) state[channel] = value;
  const waiting = waitingCalls(last.tool_calls, interrupts);
  const givenUp = [];
  const results = [];
  for (const { id, name } of last.tool_calls) {
    if (done.has(id)) {
      results.push(done.get(id));
      continue;
    }
    if (!waiting.has(id)) {
      const begun = await outcomeOf(last.id, id);
      if (!begun) continue; // the library says that it was cancelled
      const { content, failed } = begun.result ?? { content: UNKNOWN, failed: true };
      results.push(new ToolMessage({ content, tool_call_id: id, name, ...(failed && { status: "error" }) }));
      continue;
    }
    const content = waiting.get(id);
    givenUp.push({ toolCallId: id, name, content });
    results.push(new ToolMessage({ content, tool_call_id: id, name, status: "error" }));
  }
  return { messages: results, state, givenUp };
}

/** Calls of the root that wait for a person, by themselves or through an agent that they delegate to: id -> what the model reads. */
function waitingCalls(calls, interrupts) {
  const known = new Set(calls.map(({ id }) => id));
  const waiting = new Map();
  for (const { value } of interrupts) {
    if (known.has(value.rootCallId)) waiting.set(value.rootCallId, value.kind === TOOL_APPROVAL ? PASSED_OVER : NOT_ANSWERED);
  }
  return waiting;
}
