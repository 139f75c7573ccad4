import assert from "node:assert/strict";
import fs from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";
import { ToolMessage } from "langchain";
import { AIMessage } from "@langchain/core/messages";
import { Effects, UNKNOWN, askedBy } from "./effects.mjs";
import { toolResults } from "../testing/model-endpoint.mjs";
import { conversation, ofKind, scratch } from "../testing/turns.mjs";

const META_UNKNOWN = "harness-engine/outcomeUnknown";
const write = (name) => ({ id: `call_${name}`, name: "write_file", args: { file_path: `/${name}`, content: name } });
const remove = { id: "call_delete", name: "delete", args: { file_path: "/gone" } };
const approve = { decision: { calls: [{ toolCallId: "call_delete", verdict: "approve" }] } };

/** A conversation in which a call is done and its neighbour waits for a person; LangGraph's note of the result is lost. */
async function interrupted(t) {
  const script = (request, i) => (i === 0 ? { tools: [write("a"), remove] } : { text: ["done"] });
  const c = await conversation(t, { script, approval: "SENSITIVE_ONLY" });
  const { result } = await c.prompt("go");
  assert.ok(result._meta, "the turn is interrupted");
  const file = path.join(c.workspace, "a");
  assert.equal(await fs.readFile(file, "utf8"), "a");
  await fs.rm(file); // it would be there again if the call ran again
  let lost = 0;
  const folder = path.join(c.state, "checkpoints", c.id, "root");
  for (const name of await fs.readdir(folder)) {
    const content = await fs.readFile(path.join(folder, name));
    if (name.startsWith("w-") && !(await mentionsInterrupt(folder, name, content))) {
      await fs.rm(path.join(folder, name));
      lost++;
    }
  }
  assert.equal(lost, 1, "this shows nothing");
  await c.restart();
  return { c, file, exists: () => fs.access(file).then(() => true, () => false) };
}

async function mentionsInterrupt(folder, name) {
  const { readJson } = await import("./durable.mjs");
  return JSON.stringify(await readJson(folder, name)).includes("__interrupt__");
}

test("a call with a result is not run again: the graph gets the result", async (t) => {
  const { c, exists } = await interrupted(t);
  const { result, updates } = await c.prompt(approve);
  assert.equal(result.stopReason, "end_turn");
  assert.equal(await exists(), false);
  const ended = ofKind(updates, "tool_call_update").find(({ toolCallId, status }) => toolCallId === "call_a" && status === "completed");
  assert.ok(ended, JSON.stringify(updates));
  assert.match(toolResults(c.model.requests.at(-1).body).join(" | "), /wrote|written|success/i);
  await assert.rejects(fs.access(path.join(c.state, "effects", c.id)), "a turn at rest leaves nothing");
});

test("a call that was begun and has no result is not run again: nobody can tell", async (t) => {
  const { c, exists } = await interrupted(t);
  await loseResults(c);
  const { updates } = await c.prompt(approve);
  assert.equal(await exists(), false);
  const ended = ofKind(updates, "tool_call_update").find(({ toolCallId, status }) => toolCallId === "call_a" && status === "failed");
  assert.equal(ended?._meta[META_UNKNOWN], true, JSON.stringify(updates));
  assert.ok(toolResults(c.model.requests.at(-1).body).includes(UNKNOWN));
});

/** Leaves only the intents. */
async function loseResults(c) {
  const effects = new Effects({ root: path.join(c.state, "effects") });
  const folder = path.join(c.state, "effects", c.id);
  const { writeJson } = await import("./durable.mjs");
  const names = await fs.readdir(folder);
  assert.ok(names.length > 0);
  for (const name of names) await writeJson(folder, name, {}, 1024);
  await effects.recover();
}

test("a message instead of the decision: the model reads what became of the calls", async (t) => {
  for (const [lose, want] of [
    [false, /wrote|written|success/i],
    [true, /not known/],
  ]) {
    const { c } = await interrupted(t);
    if (lose) await loseResults(c);
    const { result } = await c.prompt("something else");
    assert.equal(result.stopReason, "end_turn");
    const results = toolResults(c.model.requests.at(-1).body);
    assert.equal(results.length, 2);
    assert.match(results[0], want);
  }
});

test("calls without effects are not noted", async (t) => {
  const script = (request, i) => (i === 0 ? { tools: [{ name: "ls", args: { path: "/" } }] } : { text: ["done"] });
  const c = await conversation(t, { script });
  const seen = [];
  await c.prompt("go", { onUpdate: async () => seen.push(...(await fs.readdir(path.join(c.state, "effects")).catch(() => []))) });
  assert.deepEqual(seen, []);
});

test("notes of a turn that is over are dropped, and results that are too large", async (t) => {
  const root = await scratch(t);
  const effects = new Effects({ root });
  effects.beginTurn("s", "t1");
  await effects.intend("s", "t1", "m", "c");
  await effects.note("s", "t1", "m", "c", { content: "x".repeat(5 << 20), failed: false });
  assert.deepEqual(await effects.outcome("s", "m", "c"), {});
  await effects.note("s", "t1", "m", "c", { content: "small", failed: false });
  assert.deepEqual(await effects.outcome("s", "m", "c"), { result: { content: "small", failed: false } });
  assert.equal(await effects.outcome("s", "another message", "c"), undefined, "ids of calls may repeat");
  await effects.endTurn("s");
  await effects.note("s", "t1", "m", "d", { content: "late", failed: false });
  assert.equal(await effects.outcome("s", "m", "d"), undefined);
  await assert.rejects(effects.intend("s", "t1", "m", "e"));
});

test("a call belongs to the newest message that asks for it", () => {
  const asks = (id) => new AIMessage({ id, content: "", tool_calls: [{ id: "c", name: "x", args: {} }] });
  assert.equal(askedBy([asks("m1"), new ToolMessage({ content: "", tool_call_id: "c" }), asks("m2")], "c"), "m2");
  assert.equal(askedBy([], "c"), undefined);
  assert.equal(askedBy(undefined, "c"), undefined);
});
