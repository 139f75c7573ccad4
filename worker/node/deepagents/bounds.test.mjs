import assert from "node:assert/strict";
import { test } from "node:test";
import { byteLength, cut, split } from "./bounds.mjs";

const SAMPLES = ["", "plain", "é".repeat(50), "🙂".repeat(50), "a🙂é".repeat(30), "\u0000\n\t"];

test("cut never exceeds the limit, never splits a character and says whether it cut", () => {
  for (const text of SAMPLES) {
    for (let max = 4; max < 40; max++) {
      const { text: kept, truncated } = cut(text, max);
      assert.ok(byteLength(kept) <= max);
      assert.ok(text.startsWith(kept));
      assert.equal(kept.includes("\ufffd"), false);
      assert.equal(truncated, kept !== text);
    }
  }
});

test("the pieces of a split make the whole", () => {
  for (const text of SAMPLES) {
    for (let max = 4; max < 40; max++) {
      const pieces = [...split(text, max)];
      assert.equal(pieces.join(""), text);
      assert.ok(pieces.every((piece) => piece !== "" && byteLength(piece) <= max));
    }
  }
});
