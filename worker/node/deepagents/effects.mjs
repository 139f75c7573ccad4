// What became of tool calls with effects. A call is noted before it runs, and its result before the graph goes on, both
// durably: the graph runs a call again when its own note of the result is missing, because a process died between the
// two. Then a result that is here is the result, and a call that was begun and has none is one of which nobody can tell.
//
//   <root>/<session>/<call>   one call
import path from "node:path";
import fs from "node:fs/promises";
import { createHash } from "node:crypto";
import { AIMessage } from "@langchain/core/messages";
import { MAX_KEPT_OUTCOME_BYTES } from "./bounds.mjs";
import { TooLargeError, readJson, removeUnfinished, writeJson } from "./durable.mjs";

/** What the model reads of a call of which nobody can tell. */
export const UNKNOWN = "It is not known whether this call had its effects: it was begun, and then cut off. Look before you repeat it.";

const MAX_INTENT_BYTES = 4 << 10;

/**
 * @typedef {{content: any, failed: boolean}} Result
 * @typedef {{result?: Result}} Outcome of a call that was begun; without a result nobody can tell
 */
export class Effects {
  #root;
  /** The running turn of each session. What another one's tasks still write is dropped. */
  #turns = new Map();
  /** Writes under way. */
  #writing = new Set();

  /** @param {{root: string}} options folder of all sessions; made when it is missing */
  constructor({ root }) {
    this.#root = root;
  }

  /** Removes what a killed process left unfinished. */
  async recover() {
    await removeUnfinished(this.#root);
  }

  beginTurn(session, turn) {
    this.#turns.set(session, turn);
  }

  /** When this returns the session's files are at rest, and they stay so. */
  async endTurn(session) {
    this.#turns.delete(session);
    await Promise.allSettled(this.#writing);
  }

  /**
   * What is known of a call.
   * @param {string | undefined} message id of the model's message that asks for the call: ids of calls alone may repeat
   * @returns {Promise<Outcome | undefined>} undefined: it was never begun
   */
  async outcome(session, message, toolCallId) {
    return readJson(this.#folder(session), nameOf(message, toolCallId));
  }

  /** Notes that a call is about to run. */
  async intend(session, turn, message, toolCallId) {
    if (this.#turns.get(session) !== turn) throw new Error("the turn is over");
    await this.#write(session, nameOf(message, toolCallId), {}, MAX_INTENT_BYTES);
  }

  /** Notes the result of a call. One that is too large to be kept, or that comes after its turn, is not: then nobody can tell. */
  async note(session, turn, message, toolCallId, result) {
    if (this.#turns.get(session) !== turn) return;
    try {
      await this.#write(session, nameOf(message, toolCallId), { result }, MAX_KEPT_OUTCOME_BYTES);
    } catch (error) {
      if (!(error instanceof TooLargeError)) throw error;
    }
  }

  /** Forgets the calls of a session: all that the graph asked for has its result in the conversation. */
  async forget(session) {
    await fs.rm(this.#folder(session), { recursive: true, force: true });
  }

  async #write(session, name, value, max) {
    const writing = writeJson(this.#folder(session), name, value, max);
    this.#writing.add(writing);
    try {
      await writing;
    } finally {
      this.#writing.delete(writing);
    }
  }

  #folder(session) {
    return path.join(this.#root, session);
  }
}

/** Id of the message that asks for a call, the newest one if several do. */
export function askedBy(messages, toolCallId) {
  return messages?.findLast((message) => AIMessage.isInstance(message) && message.tool_calls?.some(({ id }) => id === toolCallId))?.id;
}

function nameOf(message, toolCallId) {
  return createHash("sha256").update(JSON.stringify([message ?? null, toolCallId])).digest("hex");
}
