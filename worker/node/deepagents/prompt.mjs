// Reads what the driver sends with a prompt: the user's message with its files, or a decision.
import { IMAGE_TYPES, MAX_DOCUMENTS_BYTES, MAX_FILES, MAX_FILES_BYTES, MAX_NAME_UNITS, MAX_PROMPT_BYTES, byteLength } from "./bounds.mjs";
import { InvalidConstructionError, META } from "./construction.mjs";

/** Key of a decision in a prompt's `_meta`. */
const RESUME = `${META}/resume`;

/**
 * @typedef {object} Message
 * @property {string} text
 * @property {{name: string, mediaType: string, data: Buffer}[]} images
 * @property {{name: string, mediaType: string, text: string}[]} documents
 */

/**
 * @returns {{message: Message} | {decision: object}}
 * @throws InvalidConstructionError
 */
export function parsePrompt({ prompt, _meta }) {
  const resume = _meta?.[RESUME];
  if (resume === undefined) return { message: parseMessage(prompt) };
  if (prompt.some((block) => block.type !== "text" || block.text !== "")) throw new InvalidConstructionError("prompt", "must be empty beside a decision");
  return { decision: resume?.decision };
}

function parseMessage(blocks) {
  const message = { text: "", images: [], documents: [] };
  const texts = [];
  blocks.forEach((block, i) => {
    const field = `prompt[${i}]`;
    const read = READERS[Object.hasOwn(READERS, block.type) ? block.type : "other"];
    read(field, block, message, texts);
  });
  message.text = texts.join("\n");
  const files = message.images.length + message.documents.length;
  if (message.text.trim() === "" && files === 0) throw new InvalidConstructionError("prompt", "must not be empty");
  bound("prompt", "text", byteLength(message.text), MAX_PROMPT_BYTES);
  if (files > MAX_FILES) throw new InvalidConstructionError("prompt", `must have at most ${MAX_FILES} files`);
  bound("prompt", "documents", sum(message.documents, ({ text }) => byteLength(text)), MAX_DOCUMENTS_BYTES);
  bound("prompt", "images", sum(message.images, ({ data }) => data.length), MAX_FILES_BYTES);
  return message;
}

const READERS = {
  text: (_field, { text }, _message, texts) => texts.push(text),
  image: (field, { data, mimeType, uri }, { images }) => {
    if (!IMAGE_TYPES.includes(mimeType)) throw new InvalidConstructionError(`${field}.mimeType`, `must be one of ${IMAGE_TYPES.join(", ")}`);
    if (data === "" || data.length % 4 !== 0 || !/^[A-Za-z0-9+/]*={0,2}$/.test(data)) throw new InvalidConstructionError(`${field}.data`, "must be base64");
    images.push({ name: nameOf(uri, "image"), mediaType: mimeType, data: Buffer.from(data, "base64") });
  },
  resource: (field, { resource }, { documents }) => {
    if (typeof resource.text !== "string") throw new InvalidConstructionError(`${field}.resource`, "must be text");
    documents.push({ name: nameOf(resource.uri, "document"), mediaType: resource.mimeType ?? "text/plain", text: resource.text });
  },
  other: (field, { type }) => {
    throw new InvalidConstructionError(field, `content of type ${JSON.stringify(String(type).slice(0, 64))} is not supported`);
  },
};

/** The last part of a URI's path, as a name to show. */
function nameOf(uri, otherwise) {
  let name = String(uri ?? "").split(/[?#]/, 1)[0].split("/").at(-1);
  try {
    name = decodeURIComponent(name);
  } catch {
    // It is no encoded name, so it is one as it is.
  }
  name = name.replace(/[\u0000-\u001f\u007f-\u009f[\]"<>]/g, " ").trim();
  return name.slice(0, MAX_NAME_UNITS) || otherwise;
}

function bound(field, what, bytes, max) {
  if (bytes > max) throw new InvalidConstructionError(field, `${what} must be at most ${max} bytes long`);
}

const sum = (list, size) => list.reduce((total, item) => total + size(item), 0);
