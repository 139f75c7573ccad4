// The sessions of this process: each is one conversation with its graph, and runs one turn at a time.
import path from "node:path";
import fs from "node:fs/promises";
import { randomUUID } from "node:crypto";
import { Attachments } from "./attachments.mjs";
import { MAX_SESSIONS } from "./bounds.mjs";
import { FileSaver } from "./checkpoints.mjs";
import { readJson, removeUnfinished, writeJson } from "./durable.mjs";
import { Effects } from "./effects.mjs";
import { buildGraph } from "./graph.mjs";
import { runTurn } from "./turn.mjs";

/** No such session, open or stored. */
export class UnknownSessionError extends Error {
  constructor() {
    super("session not found");
    this.name = "UnknownSessionError";
  }
}

/** The request does not fit the state of the session. The message is safe. */
export class SessionStateError extends Error {
  constructor(code, message) {
    super(message);
    this.name = "SessionStateError";
    this.code = code;
  }
}

const MAX_RECORD_BYTES = 4096;
const ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

export class Sessions {
  #open = new Map();
  #records;
  #saver;
  #attachments;
  #effects;
  #modelUrl;

  /**
   * @param {object} options
   * @param {string} options.state folder of what must outlive this process
   * @param {string} options.modelUrl base URL of the model proxy
   */
  constructor({ state, modelUrl }) {
    this.#records = path.join(state, "sessions");
    this.#saver = new FileSaver({ root: path.join(state, "checkpoints") });
    this.#attachments = new Attachments({ root: path.join(state, "attachments") });
    this.#effects = new Effects({ root: path.join(state, "effects") });
    this.#modelUrl = modelUrl;
  }

  /** Clears up after a killed predecessor. */
  async recover() {
    await Promise.all([this.#saver.recover(), this.#attachments.recover(), this.#effects.recover(), removeUnfinished(this.#records)]);
  }

  /** Makes a session; it is durable when this returns. */
  async create(workspace, construction) {
    const id = randomUUID();
    const session = await this.#build(id, workspace, construction);
    await writeJson(this.#records, id, { id }, MAX_RECORD_BYTES);
    return session.id;
  }

  /** Opens a stored session. */
  async resume(id, workspace, construction) {
    const known = ID.test(id) && (await readJson(this.#records, id)) !== undefined;
    if (!known) throw new UnknownSessionError();
    if (this.#open.get(id)?.turn) throw new SessionStateError("turn_in_progress", "the session is running a turn");
    await this.#build(id, workspace, construction);
    // A turn that was cut off left what a turn that ends clears away.
    await this.#saver.compact(id);
  }

  /**
   * Runs a turn to its end. @see runTurn
   * @param {{message: import("./prompt.mjs").Message} | {decision: object}} prompt
   */
  async prompt(id, prompt, { send, signal }) {
    const session = this.#open.get(id);
    if (!session) throw new UnknownSessionError();
    if (session.turn) throw new SessionStateError("turn_in_progress", "the session is running a turn");
    const turn = new AbortController();
    session.turn = turn;
    try {
      return await runTurn({ ...session, saver: this.#saver, attachments: this.#attachments, effects: this.#effects, prompt, send, signal: AbortSignal.any([turn.signal, signal]) });
    } finally {
      session.turn = undefined;
    }
  }

  /** Stops the running turn, if there is one. */
  cancel(id) {
    this.#open.get(id)?.turn?.abort();
  }

  /** Closes a session; what is stored stays. */
  close(id) {
    if (!this.#open.has(id)) throw new UnknownSessionError();
    this.cancel(id);
    this.#open.delete(id);
  }

  async #build(id, workspace, construction) {
    if (!this.#open.has(id) && this.#open.size >= MAX_SESSIONS) throw new SessionStateError("too_many_sessions", `at most ${MAX_SESSIONS} sessions can be open`);
    const root = await fs.realpath(workspace);
    const graph = buildGraph({ construction, workspace: root, modelUrl: this.#modelUrl, checkpointer: this.#saver, attachments: this.#attachments, effects: this.#effects });
    const session = { id, graph, recursionLimit: construction.options.recursionLimit, turn: undefined };
    this.#open.set(id, session);
    return session;
  }
}
