import assert from "node:assert/strict";
import fs from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";
import { Attachments } from "./attachments.mjs";
import { CorruptFileError } from "./durable.mjs";
import { lastUserText } from "../testing/model-endpoint.mjs";
import { PROVIDERS, conversation, scratch, textOf } from "../testing/turns.mjs";

const picture = (name, byte, size = 100) => ({ name, mediaType: "image/png", data: Buffer.alloc(size, byte) });
const message = (text, images = [], documents = []) => ({ message: { text, images, documents } });

/** The images of a request, as base64, in order, in either provider's shape. */
const imagesOf = ({ body }) =>
  body.messages
    .filter(({ content }) => Array.isArray(content))
    .flatMap(({ content }) => content)
    .filter(({ type }) => type === "image" || type === "image_url")
    .map(({ source, image_url }) => (source ? `data:${source.media_type};${source.type},${source.data}` : image_url.url));
const url = ({ mediaType, data }) => `data:${mediaType};base64,${data.toString("base64")}`;

for (const provider of PROVIDERS) {
  test(`${provider}: images and documents reach the model, and come back with the conversation`, async (t) => {
    const c = await conversation(t, { provider, script: (request) => ({ text: [lastUserText(request.body)] }) });
    const cat = picture("cat.png", 1);
    const first = await c.prompt(message("what is this?", [cat], [{ name: "notes.md", mediaType: "text/markdown", text: "some words" }]));
    assert.equal(first.error, undefined);
    assert.match(textOf(first.updates), /Attached document: notes\.md\]\nsome words\n[^]*Attached image: cat\.png[^]*what is this\?/);
    assert.deepEqual(imagesOf(c.model.requests[0]), [url(cat)]);
    await c.restart();
    const dog = picture("dog.png", 2);
    await c.prompt(message("", [dog, cat]));
    // The same image is sent once, where it was shown last.
    assert.deepEqual(imagesOf(c.model.requests[1]), [url(dog), url(cat)]);
    assert.match(JSON.stringify(c.model.requests[1].body.messages), /cat\.png\] \(not shown here\)/);
    await c.prompt("and now?");
    assert.deepEqual(imagesOf(c.model.requests[2]), [url(dog), url(cat)]);
  });
}

test("images are not copied into the checkpoints", async (t) => {
  const c = await conversation(t, { script: () => ({ text: ["fine"] }) });
  const size = 1 << 20;
  for (let turn = 0; turn < 3; turn++) await c.prompt(message("look", [picture("a.png", 7, size)]));
  let total = 0;
  for (const name of await fs.readdir(c.state, { recursive: true })) {
    const stat = await fs.stat(path.join(c.state, name));
    if (stat.isFile()) total += stat.size;
  }
  assert.ok(total > size && total < 1.1 * size, `${total} bytes`);
});

test("the oldest images make room, and never those of the message at hand", async (t) => {
  const root = await scratch(t);
  const attachments = new Attachments({ root, maxBytes: 250 });
  const pictures = [1, 2, 3, 4].map((byte) => picture(`${byte}.png`, byte));
  const [one] = await attachments.keep("s", [pictures[0]]);
  const [two] = await attachments.keep("s", [pictures[1]]);
  await attachments.keep("s", [pictures[0]]); // used again, so two is the oldest
  const [three] = await attachments.keep("s", [pictures[2]]);
  const kept = async (hashes) => Promise.all(hashes.map(async (hash) => (await attachments.read("s", hash)) !== undefined));
  assert.deepEqual(await kept([one, two, three]), [true, false, true]);
  const hashes = await attachments.keep("s", pictures);
  assert.deepEqual(await kept(hashes), [true, true, true, true], "a message's own images are all kept");
  assert.equal((await fs.readdir(path.join(root, "s"))).length, 5);
  assert.equal(await new Attachments({ root }).read("other", one), undefined);
});

test("a damaged image is an error", async (t) => {
  const root = await scratch(t);
  const attachments = new Attachments({ root });
  const [hash] = await attachments.keep("s", [picture("a", 1)]);
  await fs.truncate(path.join(root, "s", `i-${hash}`), 90);
  await assert.rejects(attachments.read("s", hash), CorruptFileError);
});
