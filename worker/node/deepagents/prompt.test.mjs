import assert from "node:assert/strict";
import { test } from "node:test";
import { MAX_DOCUMENTS_BYTES, MAX_FILES_BYTES, MAX_PROMPT_BYTES } from "./bounds.mjs";
import { parsePrompt } from "./prompt.mjs";

const text = (value) => ({ type: "text", text: value });
const image = (extra) => ({ type: "image", mimeType: "image/png", data: "AAAA", ...extra });
const document = (extra) => ({ type: "resource", resource: { uri: "attachment:///notes.md", mimeType: "text/markdown", text: "words", ...extra } });

test("text, images and documents of a message", () => {
  const { message } = parsePrompt({ prompt: [text("a"), document(), image({ uri: "attachment:///my%20cat.png" }), text("b")] });
  assert.equal(message.text, "a\nb");
  assert.deepEqual(message.documents, [{ name: "notes.md", mediaType: "text/markdown", text: "words" }]);
  assert.deepEqual(message.images, [{ name: "my cat.png", mediaType: "image/png", data: Buffer.from([0, 0, 0]) }]);
  assert.equal(parsePrompt({ prompt: [image()] }).message.text, "", "a file alone is a message");
});

test("names of files are safe to show", () => {
  for (const [uri, name] of [
    [undefined, "document"],
    ["", "document"],
    ["attachment:///", "document"],
    ["attachment:///a%2Fb", "a/b"],
    ["attachment:///%E0%A4%A", "%E0%A4%A"],
    ["attachment:///x%0A%5D%3Cy", "x   y"],
    [`attachment:///${"n".repeat(500)}`, "n".repeat(200)],
    ["attachment:///q.txt?x=1#y", "q.txt"],
  ]) {
    assert.equal(parsePrompt({ prompt: [document({ uri })] }).message.documents[0].name, name, uri);
  }
});

test("a decision comes with an empty prompt", () => {
  const decision = { calls: [] };
  for (const prompt of [[], [text("")]]) assert.deepEqual(parsePrompt({ prompt, _meta: { "harness-engine/resume": { decision } } }), { decision });
  for (const prompt of [[text("hi")], [image()]]) assert.throws(() => parsePrompt({ prompt, _meta: { "harness-engine/resume": { decision } } }), { field: "prompt" });
});

test("bad prompts are refused by name", () => {
  const big = Buffer.alloc(6 << 20).toString("base64");
  const cases = [
    [[], "prompt"],
    [[text(" \n")], "prompt"],
    [[text("x".repeat(MAX_PROMPT_BYTES + 1))], "prompt"],
    [[text("é".repeat(MAX_PROMPT_BYTES / 2)), text("x")], "prompt"],
    [[text("x"), { type: "audio", data: "AAAA", mimeType: "audio/wav" }], "prompt[1]"],
    [[text("x"), { type: "resource_link", uri: "file:///etc/passwd", name: "x" }], "prompt[1]"],
    [[text("x"), { type: "__proto__" }], "prompt[1]"],
    [[text("x"), { type: "constructor" }], "prompt[1]"],
    [[text("x"), image({ mimeType: "image/svg+xml" })], "prompt[1].mimeType"],
    [[text("x"), image({ data: "" })], "prompt[1].data"],
    [[text("x"), image({ data: "AAA" })], "prompt[1].data"],
    [[text("x"), image({ data: "A\nAA" })], "prompt[1].data"],
    [[text("x"), document({ text: undefined, blob: "AAAA" })], "prompt[1].resource"],
    [[document({ text: "x".repeat(MAX_DOCUMENTS_BYTES + 1) })], "prompt"],
    [[image({ data: big }), image({ data: big })], "prompt"],
    [Array.from({ length: 9 }, () => image()), "prompt"],
  ];
  assert.ok(2 * (6 << 20) > MAX_FILES_BYTES);
  for (const [prompt, field] of cases) assert.throws(() => parsePrompt({ prompt }), { name: "InvalidConstructionError", field }, JSON.stringify(prompt).slice(0, 100));
});
