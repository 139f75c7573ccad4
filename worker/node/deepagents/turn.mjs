// Runs one turn of a graph and sends what happens.
import { isStepLimit } from "./failures.mjs";
import { Translator } from "./translate.mjs";

/**
 * @param {object} turn
 * @param {object} turn.graph
 * @param {string} turn.id of the session, which is the thread
 * @param {number} turn.recursionLimit most steps of the graph
 * @param {import("./checkpoints.mjs").FileSaver} turn.saver
 * @param {string} turn.text the user's message
 * @param {(update: object) => Promise<void>} turn.send takes an update; waits while the other side is slow
 * @param {AbortSignal} turn.signal cancels model and tools
 * @returns {Promise<{stopReason: string, usage?: object}>} what ACP calls the prompt's result
 * @throws whatever failed, for failures.classify
 */
export async function runTurn({ graph, id, recursionLimit, saver, text, send, signal }) {
  const translator = new Translator();
  try {
    signal.throwIfAborted();
    const stream = await graph.stream(
      { messages: [{ role: "user", content: text }] },
      {
        configurable: { thread_id: id },
        streamMode: ["messages", "updates", "custom"],
        subgraphs: true,
        durability: "sync", // a step's state is on disk before the next step begins
        recursionLimit,
        signal,
      },
    );
    for await (const [namespace, mode, data] of stream) {
      for (const update of translator.translate(namespace, mode, data)) {
        signal.throwIfAborted();
        await send(update);
      }
    }
    signal.throwIfAborted();
  } catch (error) {
    const stopReason = signal.aborted ? "cancelled" : isStepLimit(error) ? "max_turn_requests" : undefined;
    if (stopReason === undefined) throw error;
    return result(stopReason, translator);
  }
  if (!translator.interrupted) await saver.compact(id);
  return result(translator.stopReason, translator);
}

function result(stopReason, { usage }) {
  return { stopReason, ...(usage && { usage }) };
}
