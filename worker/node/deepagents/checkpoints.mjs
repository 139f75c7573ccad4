// A LangGraph checkpoint saver on plain files, for one worker at a time. A checkpoint is one file; the pending writes
// of one task of a checkpoint are one file. Both are durable before the graph goes on.
//
//   <root>/<thread>/<namespace>/c-<checkpoint>          a checkpoint
//   <root>/<thread>/<namespace>/w-<checkpoint>.<task>   pending writes of one task of it
import fs from "node:fs/promises";
import path from "node:path";
import { createHash, randomUUID } from "node:crypto";
import {
  BaseCheckpointSaver,
  WRITES_IDX_MAP,
  compareWritesSortKeys,
  copyCheckpoint,
  getCheckpointId,
  writesSortKey,
} from "@langchain/langgraph-checkpoint";
import { MAX_CHECKPOINT_BYTES } from "./bounds.mjs";
import { listNames, readJson, removeUnfinished, writeJson } from "./durable.mjs";

/**
 * Checkpoints that are kept of each namespace of a thread while a turn runs. The newest is the state; writes that belong
 * to the one before may still come.
 */
const KEEP = 2;

/** Key of a config that tells which turn it belongs to. */
export const TURN = "harness_turn";

export class FileSaver extends BaseCheckpointSaver {
  #root;
  #keep;
  #maxBytes;
  /** Last operation of each thread: operations on one thread run one after the other. */
  #tails = new Map();
  /** The running turn of each thread; null between turns. A thread without an entry takes writes of any. */
  #turns = new Map();

  /**
   * @param {object} options
   * @param {string} options.root folder of all threads; made when it is missing
   * @param {number} [options.keep] checkpoints kept per namespace, at least 1
   * @param {number} [options.maxBytes] largest file
   */
  constructor({ root, keep = KEEP, maxBytes = MAX_CHECKPOINT_BYTES }) {
    super();
    this.#root = root;
    this.#keep = keep;
    this.#maxBytes = maxBytes;
  }

  /** Removes what a killed process left unfinished. Call it once, before anything else. */
  async recover() {
    await removeUnfinished(this.#root);
  }

  /**
   * Begins a turn of a thread. Its config carries the result under TURN.
   * @returns {string}
   */
  beginTurn(thread) {
    const turn = randomUUID();
    this.#turns.set(thread, turn);
    return turn;
  }

  /**
   * Ends the turn of a thread: when this returns, the thread's files are at rest, and they stay so. What a cancelled
   * task still writes is dropped, also when another turn runs by then.
   */
  async endTurn(thread) {
    this.#turns.set(thread, null);
    await this.#tails.get(thread);
  }

  #late({ configurable }) {
    const running = this.#turns.get(configurable.thread_id);
    return running !== undefined && configurable[TURN] !== running;
  }

  async getTuple(config) {
    const thread = config.configurable?.thread_id;
    if (thread === undefined) return undefined;
    const namespace = config.configurable?.checkpoint_ns ?? "";
    return this.#exclusive(thread, async () => {
      const folder = this.#folder(thread, namespace);
      const names = await listNames(folder);
      const wanted = getCheckpointId(config);
      const name = wanted ? checkpointName(wanted) : names.filter(isCheckpoint).at(-1);
      if (name === undefined || !names.includes(name)) return undefined;
      return this.#tuple(folder, name, names, await readJson(folder, name));
    });
  }

  async *list(config, options = {}) {
    const { before, filter } = options;
    let left = options.limit ?? Infinity;
    const beforeId = before?.configurable?.checkpoint_id;
    const wanted = config.configurable?.checkpoint_id;
    for (const folder of await this.#folders(config.configurable?.thread_id, config.configurable?.checkpoint_ns)) {
      const names = await listNames(folder);
      for (const name of names.filter(isCheckpoint).reverse()) {
        if (left <= 0) return;
        const stored = await readJson(folder, name);
        // A thread may be pruned while the caller reads it.
        if (stored === undefined) continue;
        if (wanted && stored.id !== wanted) continue;
        if (beforeId && stored.id >= beforeId) continue;
        const tuple = await this.#tuple(folder, name, names, stored);
        if (filter && !Object.entries(filter).every(([key, value]) => tuple.metadata[key] === value)) continue;
        left--;
        yield tuple;
      }
    }
  }

  async put(config, checkpoint, metadata) {
    const thread = required(config, "thread_id");
    const namespace = config.configurable.checkpoint_ns ?? "";
    const [data, meta] = await Promise.all([this.#dump(copyCheckpoint(checkpoint)), this.#dump(metadata)]);
    const stored = {
      thread,
      namespace,
      id: checkpoint.id,
      parent: config.configurable.checkpoint_id ?? null,
      checkpoint: data,
      metadata: meta,
    };
    await this.#exclusive(thread, async () => {
      if (this.#late(config)) return;
      const folder = this.#folder(thread, namespace);
      await writeJson(folder, checkpointName(checkpoint.id), stored, this.#maxBytes);
      await pruneNamespace(folder, this.#keep);
    });
    return { configurable: { thread_id: thread, checkpoint_ns: namespace, checkpoint_id: checkpoint.id } };
  }

  async putWrites(config, writes, taskId, taskPath = "") {
    const thread = required(config, "thread_id");
    const id = required(config, "checkpoint_id");
    const namespace = config.configurable.checkpoint_ns ?? "";
    const added = await Promise.all(
      writes.map(async ([channel, value], index) => ({
        // Special channels have a fixed, negative place of their own and are replaced; ordinary writes are not.
        index: WRITES_IDX_MAP[channel] ?? index,
        channel,
        path: taskPath,
        value: await this.#dump(value),
      })),
    );
    await this.#exclusive(thread, async () => {
      if (this.#late(config)) return;
      const folder = this.#folder(thread, namespace);
      const name = writesName(id, taskId);
      const kept = new Map(((await readJson(folder, name))?.writes ?? []).map((write) => [write.index, write]));
      for (const write of added) if (write.index < 0 || !kept.has(write.index)) kept.set(write.index, write);
      await writeJson(folder, name, { task: taskId, checkpoint: id, writes: [...kept.values()] }, this.#maxBytes);
    });
  }

  async deleteThread(thread) {
    await this.#exclusive(thread, () => fs.rm(path.join(this.#root, fileName(thread)), { recursive: true, force: true }));
  }

  /**
   * What of a thread's newest checkpoint was not finished.
   * @returns {Promise<{messages: object[], interrupts: {id: string, value: object, task: string}[], writes: [string, string, any][]}>}
   *   the conversation, the calls that wait for an answer (also of delegated agents) in their order, and what finished
   *   tasks wrote: task, channel, value
   */
  async unfinished(thread) {
    const tuple = await this.getTuple({ configurable: { thread_id: thread } });
    if (!tuple) return { messages: [], interrupts: [], writes: [] };
    const pending = tuple.pendingWrites ?? [];
    const writes = pending.filter(([, channel]) => !(channel in WRITES_IDX_MAP));
    // An interrupt stays with its checkpoint after the answer; a task that got one, finished or failed waits no more.
    const settled = new Set(pending.filter(([, channel]) => channel !== INTERRUPT).map(([task]) => task));
    const interrupts = pending
      .filter(([task, channel]) => channel === INTERRUPT && !settled.has(task))
      .flatMap(([task, , list]) => list.map(({ id, value }) => ({ id, value, task })));
    return { messages: tuple.checkpoint.channel_values.messages ?? [], interrupts, writes };
  }

  /**
   * Drops what a thread at rest no longer needs: every checkpoint but the newest, and the state of delegated agents,
   * whose work is in the thread's own state, except of those that wait for a person.
   */
  async compact(thread) {
    const { interrupts } = await this.unfinished(thread);
    const waiting = new Set(interrupts.map(({ task }) => task));
    await this.#exclusive(thread, async () => {
      const root = path.join(this.#root, fileName(thread));
      for (const name of await listNames(root)) {
        const folder = path.join(root, name);
        if (name === fileName("") || (waiting.size > 0 && waiting.has(await taskOf(folder)))) await pruneNamespace(folder, 1);
        else await fs.rm(folder, { recursive: true, force: true });
      }
    });
  }

  async #tuple(folder, name, names, stored) {
    const configurable = { thread_id: stored.thread, checkpoint_ns: stored.namespace };
    const tuple = {
      config: { configurable: { ...configurable, checkpoint_id: stored.id } },
      checkpoint: await this.#load(stored.checkpoint),
      metadata: await this.#load(stored.metadata),
      pendingWrites: await this.#pendingWrites(folder, name, names),
    };
    if (stored.parent !== null) tuple.parentConfig = { configurable: { ...configurable, checkpoint_id: stored.parent } };
    return tuple;
  }

  async #pendingWrites(folder, checkpoint, names) {
    const prefix = `${WRITES}${checkpoint.slice(CHECKPOINT.length)}.`;
    const found = [];
    for (const name of names.filter((candidate) => candidate.startsWith(prefix))) {
      const stored = await readJson(folder, name);
      for (const write of stored?.writes ?? []) found.push({ task: stored.task, ...write });
    }
    // The order in which a running graph applies the writes of a step; another order could rebuild another state.
    const key = (write) => writesSortKey(write.path, write.task, write.index);
    found.sort((a, b) => compareWritesSortKeys(key(a), key(b)));
    return Promise.all(found.map(async (write) => [write.task, write.channel, await this.#load(write.value)]));
  }

  async #folders(thread, namespace) {
    const threads = thread === undefined ? await listNames(this.#root) : [fileName(thread)];
    const folders = [];
    for (const name of threads) {
      const parent = path.join(this.#root, name);
      const namespaces = namespace === undefined ? await listNames(parent) : [fileName(namespace)];
      for (const child of namespaces) folders.push(path.join(parent, child));
    }
    return folders;
  }

  #folder(thread, namespace) {
    return path.join(this.#root, fileName(thread), fileName(namespace));
  }

  async #dump(value) {
    const [type, bytes] = await this.serde.dumpsTyped(value);
    return [type, Buffer.from(bytes).toString(type === "json" ? "utf8" : "base64")];
  }

  #load([type, text]) {
    return this.serde.loadsTyped(type, type === "json" ? text : Buffer.from(text, "base64"));
  }

  async #exclusive(thread, work) {
    const before = this.#tails.get(thread) ?? Promise.resolve();
    const result = before.then(work);
    const tail = result.then(
      () => {},
      () => {},
    );
    this.#tails.set(thread, tail);
    try {
      return await result;
    } finally {
      if (this.#tails.get(thread) === tail) this.#tails.delete(thread);
    }
  }
}

const CHECKPOINT = "c-";
const WRITES = "w-";

/** LangGraph's channel of interrupts. */
const INTERRUPT = "__interrupt__";

/** Keeps the newest checkpoints of a namespace and the writes that belong to them. */
async function pruneNamespace(folder, keep) {
  const names = await listNames(folder);
  const kept = new Set(names.filter(isCheckpoint).slice(-keep).map((name) => name.slice(CHECKPOINT.length)));
  for (const name of names) {
    const owner = isCheckpoint(name) ? name.slice(CHECKPOINT.length) : name.slice(WRITES.length).split(".", 1)[0];
    if (!kept.has(owner)) await fs.rm(path.join(folder, name), { force: true });
  }
}

/** The task of the root's graph that a delegated agent's namespace belongs to. It looks like `tools:<task>|...`. */
async function taskOf(folder) {
  const newest = (await listNames(folder)).filter(isCheckpoint).at(-1);
  const stored = newest && (await readJson(folder, newest));
  return stored?.namespace.split("|", 1)[0].split(":").at(-1);
}

const isCheckpoint = (name) => name.startsWith(CHECKPOINT);
const checkpointName = (id) => CHECKPOINT + fileName(id);
const writesName = (id, task) => `${WRITES}${fileName(id)}.${fileName(task)}`;

/**
 * A file name for any id. Checkpoint ids are UUIDs of version 6 and keep their form, so that names sort by time; every
 * other form that could mean something to the file system is replaced by its digest.
 */
function fileName(id) {
  if (typeof id !== "string") throw new TypeError("an id must be a string");
  if (id === "") return "root";
  if (/^[0-9a-f][0-9a-f-]{7,63}$/.test(id)) return id;
  return `h-${createHash("sha256").update(id).digest("hex")}`;
}

function required(config, field) {
  const value = config.configurable?.[field];
  if (typeof value !== "string" || value === "") throw new TypeError(`the config of a checkpoint has no ${field}`);
  return value;
}
