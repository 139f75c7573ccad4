import assert from "node:assert/strict";
import fs from "node:fs/promises";
import path from "node:path";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { HumanMessage } from "@langchain/core/messages";
import { Annotation, Command, END, MemorySaver, START, StateGraph, interrupt } from "@langchain/langgraph";
import { FileSaver, TURN } from "./checkpoints.mjs";
import { CorruptFileError, TooLargeError } from "./durable.mjs";
import { THREAD, checkpoint, config } from "../testing/checkpoints.mjs";
import { scratch } from "../testing/turns.mjs";

const everything = async (generator) => {
  const all = [];
  for await (const item of generator) all.push(item);
  return all;
};

test("a checkpoint comes back as it was, also in another process", async (t) => {
  const root = await scratch(t);
  const saver = new FileSaver({ root });
  const values = { message: new HumanMessage("hi"), set: new Set([1]), bytes: new Uint8Array([1, 2]), nothing: undefined, text: "é🙂" };
  const returned = await saver.put(config(), checkpoint(1, values), { source: "loop", step: 1 }, {});
  assert.deepEqual(returned, config({ checkpoint_id: checkpoint(1).id }));
  await saver.put(returned, checkpoint(2, values), { source: "loop", step: 2 }, {});
  for (const each of [saver, new FileSaver({ root })]) {
    const tuple = await each.getTuple(config());
    assert.equal(tuple.checkpoint.id, checkpoint(2).id);
    assert.deepEqual(tuple.config, config({ checkpoint_id: checkpoint(2).id }));
    assert.deepEqual(tuple.parentConfig, config({ checkpoint_id: checkpoint(1).id }));
    assert.deepEqual(tuple.metadata, { source: "loop", step: 2 });
    const { message, set, bytes, text } = tuple.checkpoint.channel_values;
    assert.ok(HumanMessage.isInstance(message));
    assert.deepEqual(set, values.set);
    assert.deepEqual(bytes, values.bytes);
    assert.equal(text, values.text);
    assert.equal((await each.getTuple(config({ checkpoint_id: checkpoint(1).id }))).checkpoint.id, checkpoint(1).id);
  }
  assert.equal(await saver.getTuple(config({ thread_id: "other" })), undefined);
  assert.equal(await saver.getTuple(config({ checkpoint_id: checkpoint(9).id })), undefined);
  assert.equal(await saver.getTuple({ configurable: {} }), undefined);
});

test("it answers as LangGraph's own saver does, for any sequence of operations", async (t) => {
  const root = await scratch(t);
  const ours = new FileSaver({ root, keep: 1_000 });
  const reference = new MemorySaver();
  let seed = 7;
  const random = (n) => (seed = (seed * 48271) % 2147483647) % n;
  const threads = [THREAD, "thread with/../odd name", "__proto"];
  const namespaces = ["", "tools:11111111-0000-5000-8000-000000000000", "a|b"];
  const channels = ["x", "y", "__error__", "__interrupt__", "__resume__", "__scheduled__"];
  const used = [];
  for (let n = 0; n < 120; n++) {
    const place = { thread_id: threads[random(3)], checkpoint_ns: namespaces[random(3)] };
    if (used.length === 0 || random(2) === 0) {
      const at = config({ ...place, checkpoint_id: random(3) === 0 ? undefined : checkpoint(random(200)).id });
      for (const saver of [ours, reference]) await saver.put(at, checkpoint(n), { step: n, even: n % 2 === 0 }, {});
      used.push({ ...place, checkpoint_id: checkpoint(n).id });
    } else {
      const at = config(used[random(used.length)]);
      const writes = Array.from({ length: 1 + random(3) }, () => [channels[random(channels.length)], { n, v: random(100) }]);
      const task = `task-${random(3)}`;
      const path_ = ["", "~__pregel_pull, node", "é"][random(3)];
      for (const saver of [ours, reference]) await saver.putWrites(at, writes, task, path_);
    }
  }
  const other = new FileSaver({ root, keep: 1_000 });
  for (const place of used) {
    assert.deepEqual(await other.getTuple(config(place)), await reference.getTuple(config(place)));
    const newest = config({ thread_id: place.thread_id, checkpoint_ns: place.checkpoint_ns });
    assert.deepEqual(await other.getTuple(newest), await reference.getTuple(newest));
    for (const options of [{}, { limit: 2 }, { limit: 0 }, { filter: { even: true } }, { before: config(place) }, { before: config(place), limit: 1, filter: { even: false } }]) {
      for (const at of [newest, { configurable: { thread_id: place.thread_id, checkpoint_ns: place.checkpoint_ns, checkpoint_id: place.checkpoint_id } }]) {
        assert.deepEqual(await everything(other.list(at, options)), await everything(reference.list(at, options)));
      }
    }
  }
  const byId = (a, b) => (JSON.stringify(a.config) < JSON.stringify(b.config) ? -1 : 1);
  assert.deepEqual((await everything(other.list({ configurable: {} }))).sort(byId), (await everything(reference.list({ configurable: {} }))).sort(byId));
  await ours.deleteThread(threads[1]);
  await reference.deleteThread(threads[1]);
  assert.deepEqual((await everything(ours.list({ configurable: {} }))).sort(byId), (await everything(reference.list({ configurable: {} }))).sort(byId));
});

test("only the newest checkpoints of a namespace are kept, with their writes", async (t) => {
  const root = await scratch(t);
  const saver = new FileSaver({ root, keep: 2 });
  for (let n = 0; n < 10; n++) {
    await saver.put(config(), checkpoint(n), {}, {});
    await saver.putWrites(config({ checkpoint_id: checkpoint(n).id }), [["x", n]], "task");
  }
  const kept = await everything(saver.list(config()));
  assert.deepEqual(
    kept.map((tuple) => tuple.pendingWrites),
    [[["task", "x", 9]], [["task", "x", 8]]],
  );
  const files = (await fs.readdir(root, { recursive: true })).filter((name) => /[cw]-/.test(name));
  assert.equal(files.length, 4);
});

test("compacting keeps the thread's own state and drops that of delegated agents", async (t) => {
  const saver = new FileSaver({ root: await scratch(t) });
  await saver.put(config(), checkpoint(1), {}, {});
  await saver.put(config({ checkpoint_ns: "tools:x" }), checkpoint(2), {}, {});
  await saver.put(config({ thread_id: "other", checkpoint_ns: "tools:x" }), checkpoint(3), {}, {});
  await saver.compact(THREAD);
  assert.equal((await saver.getTuple(config())).checkpoint.id, checkpoint(1).id);
  assert.equal(await saver.getTuple(config({ checkpoint_ns: "tools:x" })), undefined);
  assert.ok(await saver.getTuple(config({ thread_id: "other", checkpoint_ns: "tools:x" })));
});

test("compacting keeps what waits for a person, one checkpoint of each, and nothing else", async (t) => {
  const saver = new FileSaver({ root: await scratch(t) });
  const waiting = "11111111-0000-5000-8000-000000000000";
  const done = "22222222-0000-5000-8000-000000000000";
  for (const n of [1, 2]) for (const checkpoint_ns of ["", `tools:${waiting}`, `tools:${waiting}|tools:x`, `tools:${done}`]) await saver.put(config({ checkpoint_ns }), checkpoint(n), {}, {});
  const at = config({ checkpoint_id: checkpoint(2).id });
  await saver.putWrites(at, [["__interrupt__", [{ id: "i", value: { question: 1 } }]]], waiting);
  await saver.putWrites(at, [["__interrupt__", [{ id: "j", value: { question: 2 } }]]], done);
  await saver.putWrites(at, [["messages", ["answer"]]], done);
  assert.deepEqual((await saver.unfinished(THREAD)).interrupts, [{ id: "i", value: { question: 1 }, task: waiting }]);
  assert.deepEqual((await saver.unfinished(THREAD)).writes, [[done, "messages", ["answer"]]]);
  await saver.compact(THREAD);
  const left = await everything(saver.list({ configurable: { thread_id: THREAD } }));
  assert.deepEqual(left.map(({ config: { configurable } }) => [configurable.checkpoint_ns, configurable.checkpoint_id]).sort(), [
    ["", checkpoint(2).id],
    [`tools:${waiting}`, checkpoint(2).id],
    [`tools:${waiting}|tools:x`, checkpoint(2).id],
  ]);
  assert.equal((await saver.unfinished(THREAD)).interrupts.length, 1, "the writes stay");
  await saver.putWrites(at, [["__resume__", ["yes"]]], waiting);
  assert.deepEqual((await saver.unfinished(THREAD)).interrupts, [], "an answer settles it");
  assert.deepEqual(await saver.unfinished("nobody"), { messages: [], interrupts: [], writes: [] });
});

test("what a cancelled task writes late is dropped", async (t) => {
  const root = await scratch(t);
  const saver = new FileSaver({ root });
  const of = (turn, extra) => ({ configurable: { ...config(extra).configurable, [TURN]: turn } });
  const first = saver.beginTurn(THREAD);
  await saver.put(of(first), checkpoint(1), {}, {});
  const slow = saver.put(of(first), checkpoint(2), {}, {});
  await saver.endTurn(THREAD);
  const files = async () => (await fs.readdir(root, { recursive: true })).filter((name) => /[cw]-/.test(name)).sort();
  const atRest = await files();
  await slow;
  const late = async (turn) => {
    await saver.put(of(turn), checkpoint(3), {}, {});
    await saver.putWrites(of(turn, { checkpoint_id: checkpoint(2).id }), [["x", 1]], "task");
  };
  await late(first);
  await late(undefined);
  assert.deepEqual(await files(), atRest);
  const second = saver.beginTurn(THREAD);
  await late(first);
  assert.deepEqual(await files(), atRest);
  await late(second);
  assert.equal((await saver.getTuple(config())).checkpoint.id, checkpoint(3).id);
});

test("ids never become paths", async (t) => {
  const outside = await scratch(t);
  const root = path.join(outside, "root");
  const saver = new FileSaver({ root });
  for (const id of ["..", "../x", "a/b", "/etc/x", ".", "\0", "x".repeat(5000), "CON", "é"]) {
    await saver.put(config({ thread_id: id, checkpoint_ns: id }), { ...checkpoint(1), id }, {}, {});
    await saver.putWrites(config({ thread_id: id, checkpoint_ns: id, checkpoint_id: id }), [["x", 1]], id, id);
    const tuple = await saver.getTuple(config({ thread_id: id, checkpoint_ns: id }));
    assert.equal(tuple.checkpoint.id, id);
    assert.equal(tuple.pendingWrites.length, 1);
    await saver.deleteThread(id);
    assert.equal(await saver.getTuple(config({ thread_id: id, checkpoint_ns: id })), undefined);
  }
  assert.deepEqual(await fs.readdir(outside), ["root"]);
  for (const id of ["", undefined, 7, null]) await assert.rejects(saver.put({ configurable: { thread_id: id } }, checkpoint(1), {}, {}), TypeError);
});

test("a damaged checkpoint is an error, never an older state", async (t) => {
  const root = await scratch(t);
  const saver = new FileSaver({ root });
  await saver.put(config(), checkpoint(1), {}, {});
  await saver.put(config(), checkpoint(2), {}, {});
  const file = (await fs.readdir(root, { recursive: true })).find((name) => name.endsWith(`c-${checkpoint(2).id}`));
  await fs.truncate(path.join(root, file), 100);
  await assert.rejects(saver.getTuple(config()), CorruptFileError);
});

test("a checkpoint over the limit is refused and the state stays", async (t) => {
  const saver = new FileSaver({ root: await scratch(t), maxBytes: 100_000 });
  await saver.put(config(), checkpoint(1), {}, {});
  await assert.rejects(saver.put(config(), checkpoint(2, { more: "x".repeat(100_000) }), {}, {}), TooLargeError);
  assert.equal((await saver.getTuple(config())).checkpoint.id, checkpoint(1).id);
});

test("many operations at once", async (t) => {
  const saver = new FileSaver({ root: await scratch(t) });
  await saver.put(config(), checkpoint(1), {}, {});
  const at = config({ checkpoint_id: checkpoint(1).id });
  await Promise.all(Array.from({ length: 50 }, (_, n) => saver.putWrites(at, [[`channel-${n}`, n]], `task-${n % 5}`)));
  // The first write at a place stays: five tasks, each with one place.
  assert.equal((await saver.getTuple(config())).pendingWrites.length, 5);
});

test("an interrupt is resumed by another process, once", async (t) => {
  const root = await scratch(t);
  const runs = [];
  const make = () =>
    new StateGraph(Annotation.Root({ said: Annotation({ reducer: (a, b) => [...a, ...b], default: () => [] }) }))
      .addNode("left", () => {
        runs.push("left");
        return { said: ["left"] };
      })
      .addNode("ask", () => ({ said: [interrupt({ question: "go on?" })] }))
      .addNode("end", () => ({ said: ["end"] }))
      .addEdge(START, "left")
      .addEdge(START, "ask")
      .addEdge("ask", "end")
      .addEdge("end", END)
      .compile({ checkpointer: new FileSaver({ root }) });
  const options = { configurable: { thread_id: THREAD }, durability: "sync" };
  const first = await make().invoke({ said: [] }, options);
  assert.equal(first.__interrupt__[0].value.question, "go on?");
  const state = await make().getState(options);
  assert.deepEqual(state.next, ["ask"]);
  assert.equal(state.tasks.find((task) => task.name === "ask").interrupts[0].value.question, "go on?");
  const result = await make().invoke(new Command({ resume: "yes" }), options);
  assert.deepEqual([...result.said].sort(), ["end", "left", "yes"]);
  assert.deepEqual(runs, ["left"], "what had run does not run again");
});

test("SIGKILL at any time loses nothing that was acknowledged", { timeout: 900_000 }, async (t) => {
  const root = await scratch(t);
  const writer = fileURLToPath(new URL("../testing/checkpoint-writer.mjs", import.meta.url));
  let next = 0;
  for (let round = 0; round < 8; round++) {
    const child = spawn(process.execPath, [writer, root, String(next)], { stdio: ["ignore", "pipe", "inherit"] });
    let said = "";
    child.stdout.setEncoding("utf8").on("data", (data) => {
      said += data;
      // Kill at another moment each time, somewhere in the operation that follows.
      if (said.split("\n").length > 8 + round * 5) setTimeout(() => child.kill("SIGKILL"), (round * 37) % 11);
    });
    await once(child, "close");
    const lines = said.trim().split("\n");
    const acknowledged = (kind) => Number(lines.findLast((line) => line.startsWith(kind)).slice(2));
    const saver = new FileSaver({ root });
    await saver.recover();
    const newest = await saver.getTuple(config());
    const { n } = newest.checkpoint.channel_values;
    assert.ok(n === acknowledged("c") || n === acknowledged("c") + 1, `checkpoint ${n} after ${lines.at(-1)}`);
    const written = await saver.getTuple(config({ checkpoint_id: checkpoint(acknowledged("w")).id }));
    assert.deepEqual(written.pendingWrites, [["task", "channel", { n: acknowledged("w") }]]);
    for await (const tuple of saver.list(config())) assert.equal(checkpoint(tuple.checkpoint.channel_values.n).id, tuple.checkpoint.id);
    const names = await fs.readdir(root, { recursive: true });
    assert.equal(names.some((name) => name.includes(".unfinished")), false);
    next = n + 1;
  }
});
