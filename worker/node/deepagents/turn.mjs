// Runs one turn of a graph and sends what happens.
import { Command } from "@langchain/langgraph";
import { HumanMessage } from "@langchain/core/messages";
import { reference } from "./attachments.mjs";
import { TURN } from "./checkpoints.mjs";
import { META } from "./construction.mjs";
import { isStepLimit } from "./failures.mjs";
import { answers, question } from "./interrupts.mjs";
import { isAtRest, leftovers } from "./leftovers.mjs";
import { Translator } from "./translate.mjs";

/** Key of an interrupt in the `_meta` of a prompt's result. */
export const INTERRUPT = `${META}/interrupt`;

/**
 * @param {object} turn
 * @param {object} turn.graph
 * @param {string} turn.id of the session, which is the thread
 * @param {number} turn.recursionLimit most steps of the graph
 * @param {import("./checkpoints.mjs").FileSaver} turn.saver
 * @param {import("./attachments.mjs").Attachments} turn.attachments
 * @param {import("./effects.mjs").Effects} turn.effects
 * @param {{message: import("./prompt.mjs").Message} | {decision: object}} turn.prompt what the turn begins with
 * @param {(update: object) => Promise<void>} turn.send takes an update; waits while the other side is slow
 * @param {AbortSignal} turn.signal cancels model and tools
 * @returns {Promise<{stopReason: string, usage?: object, _meta?: object}>} what ACP calls the prompt's result
 * @throws whatever failed, for failures.classify, and what is wrong with the prompt
 */
export async function runTurn(turn) {
  const { id, saver, effects } = turn;
  const run = saver.beginTurn(id);
  effects.beginTurn(id, run);
  try {
    return await play(turn, run);
  } finally {
    await effects.endTurn(id);
    await saver.endTurn(id);
    await saver.compact(id);
    if (isAtRest(await saver.unfinished(id))) await effects.forget(id);
  }
}

async function play({ graph, id, recursionLimit, saver, attachments, effects, prompt, send, signal }, run) {
  const translator = new Translator({ resumed: prompt.decision !== undefined });
  try {
    signal.throwIfAborted();
    const { input, updates } = await begin({ id, saver, attachments, effects, prompt, translator });
    for (const update of updates) await send(update);
    const stream = await graph.stream(input, {
      configurable: { thread_id: id, [TURN]: run },
      streamMode: ["messages", "updates", "custom"],
      subgraphs: true,
      durability: "sync", // a step's state is on disk before the next step begins
      recursionLimit,
      signal,
    });
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
  if (!translator.interrupted) return result(translator.stopReason, translator);
  const asked = question((await saver.unfinished(id)).interrupts);
  // Calls that still wait after a decision on others have had no update in this turn.
  for (const call of asked.calls ?? []) if (prompt.decision) await send(translator.stillWaiting(call));
  return { ...result("end_turn", translator), _meta: { [INTERRUPT]: asked } };
}

/** What the graph is started with, and what is told before it starts. */
async function begin({ id, saver, attachments, effects, prompt, translator }) {
  const unfinished = await saver.unfinished(id);
  if (prompt.decision !== undefined) {
    return { input: new Command({ resume: answers(unfinished.interrupts, prompt.decision) }), updates: [] };
  }
  const { messages, state, givenUp } = await leftovers(unfinished, (message, call) => effects.outcome(id, message, call));
  return {
    input: { ...state, messages: [...messages, await messageOf(id, attachments, prompt.message)] },
    updates: givenUp.map((call) => translator.givenUp(call)),
  };
}

async function messageOf(id, attachments, { text, images, documents }) {
  if (images.length + documents.length === 0) return new HumanMessage(text);
  const hashes = await attachments.keep(id, images);
  return new HumanMessage({
    content: [
      ...documents.map(({ name, text: content }) => ({ type: "text", text: `[Attached document: ${name}]\n${content}\n[End of ${name}]` })),
      ...images.map((image, i) => reference(image, hashes[i])),
      ...(text.trim() === "" ? [] : [{ type: "text", text }]),
    ],
  });
}

function result(stopReason, { usage }) {
  return { stopReason, ...(usage && { usage }) };
}
