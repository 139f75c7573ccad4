// Images that users attach. They are kept once, by their hash, beside the checkpoints, which only refer to them: every
// checkpoint holds the whole conversation.
//
//   <root>/<session>/index      the images that are kept, oldest first
//   <root>/<session>/i-<hash>   one image
import path from "node:path";
import fs from "node:fs/promises";
import { createHash } from "node:crypto";
import { HumanMessage } from "@langchain/core/messages";
import { createMiddleware } from "langchain";
import { MAX_FILES_BYTES, MAX_KEPT_IMAGES_BYTES } from "./bounds.mjs";
import { listNames, readBytes, readJson, removeUnfinished, writeBytes, writeJson } from "./durable.mjs";

const INDEX = "index";
const MAX_INDEX_BYTES = 1 << 20;

export class Attachments {
  #root;
  #maxBytes;

  /**
   * @param {object} options
   * @param {string} options.root folder of all sessions; made when it is missing
   * @param {number} [options.maxBytes] most bytes of images that a session keeps
   */
  constructor({ root, maxBytes = MAX_KEPT_IMAGES_BYTES }) {
    this.#root = root;
    this.#maxBytes = maxBytes;
  }

  /** Removes what a killed process left unfinished. */
  async recover() {
    await removeUnfinished(this.#root);
  }

  /**
   * Keeps images; they are durable when this returns. The oldest ones are given up for the new ones.
   * @param {{data: Buffer}[]} images
   * @returns {Promise<string[]>} their hashes
   */
  async keep(session, images) {
    const folder = path.join(this.#root, session);
    let index = (await readJson(folder, INDEX)) ?? [];
    const hashes = [];
    for (const { data } of images) {
      const hash = createHash("sha256").update(data).digest("hex");
      hashes.push(hash);
      await writeBytes(folder, nameOf(hash), data, MAX_FILES_BYTES);
      index = [...index.filter((image) => image.hash !== hash), { hash, size: data.length }];
    }
    let total = index.reduce((sum, { size }) => sum + size, 0);
    while (total > this.#maxBytes && index.length > new Set(hashes).size) total -= index.shift().size;
    await writeJson(folder, INDEX, index, MAX_INDEX_BYTES);
    const kept = new Set([INDEX, ...index.map(({ hash }) => nameOf(hash))]);
    for (const name of await listNames(folder)) if (!kept.has(name)) await fs.rm(path.join(folder, name), { force: true });
    return hashes;
  }

  /** An image's bytes; undefined when it is not kept any more. */
  read(session, hash) {
    return readBytes(path.join(this.#root, session), nameOf(hash));
  }

  /** Middleware that puts the images into what the model reads. @returns {import("langchain").AgentMiddleware} */
  middleware() {
    return createMiddleware({
      name: "harnessAttachments",
      wrapModelCall: async (request, handler) => {
        const session = request.runtime.configurable?.thread_id;
        return handler({ ...request, messages: await this.#shown(session, request.messages) });
      },
    });
  }

  /** The messages with each image in its newest place. */
  async #shown(session, messages) {
    const seen = new Set();
    const shown = [...messages];
    for (let at = messages.length - 1; at >= 0; at--) {
      const message = messages[at];
      if (!HumanMessage.isInstance(message) || !Array.isArray(message.content) || !message.content.some(isReference)) continue;
      const content = [];
      for (const part of message.content) content.push(...(isReference(part) ? await this.#parts(session, part, seen) : [part]));
      shown[at] = new HumanMessage({ id: message.id, name: message.name, additional_kwargs: message.additional_kwargs, content });
    }
    return shown;
  }

  async #parts(session, { text, image: { hash, mediaType } }, seen) {
    const data = seen.has(hash) ? undefined : await this.read(session, hash);
    seen.add(hash);
    const said = { type: "text", text: data ? text : `${text} (not shown here)` };
    return data ? [said, { type: "image_url", image_url: { url: `data:${mediaType};base64,${data.toString("base64")}` } }] : [said];
  }
}

/** The place of an image in a stored message: text, for everything that does not know better. */
export function reference({ name, mediaType }, hash) {
  return { type: "text", text: `[Attached image: ${name}]`, image: { hash, mediaType } };
}

const isReference = (part) => typeof part.image?.hash === "string";
const nameOf = (hash) => `i-${hash}`;
