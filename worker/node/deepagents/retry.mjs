// Asks the model again when an answer was cut off, in mid-stream or before it began: its connection was lost, as when the
// engine that passed it on was killed. Nothing else is asked again, and nobody below does so silently. What people saw of
// the cut answer stands as a message of its own; it is not in the conversation, and nothing that it asked for runs.
import { setTimeout as pause } from "node:timers/promises";
import { createMiddleware } from "langchain";
import { classify, isModelFailure } from "./failures.mjs";

/** Type of the custom stream part that says that the model is asked again. */
export const MODEL_RETRIED = "model_retried";

/** Pauses between attempts, in milliseconds; there is one attempt more. */
const PAUSES = [250, 1_000];

const isCut = (error) => isModelFailure(error) && classify(error).code === "model_stream_cut";

/**
 * @template T
 * @param {() => Promise<T>} attempt one model call
 * @param {object} runtime of the request
 * @param {() => boolean} [mayRetry] asked after a cut
 * @returns {Promise<T>}
 */
export async function asking(attempt, runtime, mayRetry = () => true) {
  for (const wait of PAUSES) {
    try {
      return await attempt();
    } catch (error) {
      if (runtime.signal?.aborted || !isCut(error) || !mayRetry()) throw error;
    }
    runtime.writer?.({ type: MODEL_RETRIED });
    await pause(wait, undefined, { signal: runtime.signal });
  }
  return attempt();
}

/** It must be in the middleware of every agent of the graph, also of delegated ones, and last, next to the model. */
export function modelRetry() {
  return createMiddleware({
    name: "harnessModelRetry",
    wrapModelCall: (request, handler) => asking(() => handler(request), request.runtime),
  });
}
