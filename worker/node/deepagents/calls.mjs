// Which tool call the code at hand works for, and which call of the conversation that one works for: that of the root's
// agent which delegated the work, or itself.
import { AsyncLocalStorage } from "node:async_hooks";

const current = new AsyncLocalStorage();

/** Ids of a call: its own, and that of the root's call. @returns {{toolCallId: string, rootCallId: string}} */
export function idsOf(toolCallId) {
  return { toolCallId, rootCallId: current.getStore()?.rootCallId ?? toolCallId };
}

/** Ids of the call at hand. */
export const currentCall = () => current.getStore();

/** Runs work as part of a call. */
export const runAs = (toolCallId, work) => current.run(idsOf(toolCallId), work);
