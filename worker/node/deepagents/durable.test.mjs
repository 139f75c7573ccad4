import assert from "node:assert/strict";
import fs from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";
import { CorruptFileError, TooLargeError, listNames, readJson, removeUnfinished, writeJson } from "./durable.mjs";
import { scratch } from "../testing/turns.mjs";

test("what is written is read, in folders that did not exist", async (t) => {
  const folder = path.join(await scratch(t), "a", "b");
  const value = { text: "é🙂\n\u0000", list: [1, null] };
  assert.equal(await readJson(folder, "x"), undefined);
  await writeJson(folder, "x", value, 1000);
  assert.deepEqual(await readJson(folder, "x"), value);
  await writeJson(folder, "x", 2, 1000);
  assert.equal(await readJson(folder, "x"), 2);
  assert.deepEqual(await listNames(folder), ["x"]);
});

test("any damage is noticed", async (t) => {
  const folder = await scratch(t);
  await writeJson(folder, "x", { text: "hello" }, 1000);
  const whole = await fs.readFile(path.join(folder, "x"));
  for (let at = 0; at < whole.length; at++) {
    const flipped = Buffer.from(whole);
    flipped[at] ^= 1;
    for (const damaged of [flipped, whole.subarray(0, at)]) {
      await fs.writeFile(path.join(folder, "x"), damaged);
      await assert.rejects(readJson(folder, "x"), CorruptFileError, `at ${at}`);
    }
  }
});

test("a value over the limit is refused and changes nothing", async (t) => {
  const folder = await scratch(t);
  await writeJson(folder, "x", 1, 10);
  await assert.rejects(writeJson(folder, "x", "0123456789", 10), TooLargeError);
  assert.equal(await readJson(folder, "x"), 1);
});

test("a failed write leaves nothing behind", async (t) => {
  const folder = await scratch(t);
  await fs.mkdir(path.join(folder, "x"));
  await assert.rejects(writeJson(folder, "x", 1, 10));
  assert.deepEqual(await fs.readdir(folder), ["x"]);
});

test("unfinished files are not listed, and are removed", async (t) => {
  const folder = await scratch(t);
  await writeJson(path.join(folder, "sub"), "x", 1, 10);
  await fs.writeFile(path.join(folder, "sub", ".unfinished-00"), "ha");
  assert.deepEqual(await listNames(path.join(folder, "sub")), ["x"]);
  await removeUnfinished(folder);
  await removeUnfinished(path.join(folder, "none"));
  assert.deepEqual(await fs.readdir(path.join(folder, "sub")), ["x"]);
});
