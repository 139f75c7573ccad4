// The limits of this agent, in one place, and the ways in which text is kept within them.

/**
 * Longest line that is read, in bytes: a message with its images in base64. What is written is bounded by the limits
 * below and far shorter.
 */
export const MAX_LINE_BYTES = 20 << 20;

/** Longest user message, in bytes of UTF-8. */
export const MAX_PROMPT_BYTES = 1 << 20;

/** Most files of one message; the bytes of its images together; the bytes of UTF-8 of its documents together. */
export const MAX_FILES = 8;
export const MAX_FILES_BYTES = 10 << 20;
export const MAX_DOCUMENTS_BYTES = 1 << 20;

/** Types of images that both providers' models take. */
export const IMAGE_TYPES = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/** Longest name of a file, in UTF-16 units. */
export const MAX_NAME_UNITS = 200;

/**
 * Most bytes of images that a conversation keeps. In base64 they must fit, with everything else, into one request to
 * the model (32 MiB, also at the engine's model proxy).
 */
export const MAX_KEPT_IMAGES_BYTES = 16 << 20;

/** What one interrupt shows: calls; bytes of one call's arguments, of a schema, and of all of them together. */
export const MAX_SHOWN_CALLS = 32;
export const MAX_SHOWN_ARGUMENTS_BYTES = 32 << 10;
export const MAX_SCHEMA_BYTES = 8 << 10;
export const MAX_SHOWN_CALLS_BYTES = 48 << 10;

/** Longest text that answers a field of a form, and longest reason of a rejection, in bytes of UTF-8. */
export const MAX_ANSWER_BYTES = 64 << 10;
export const MAX_REASON_BYTES = 4 << 10;

/** Longest system prompt, in UTF-16 units. */
export const MAX_SYSTEM_PROMPT_UNITS = 800_000;

/** Longest piece of text in one update, in bytes of UTF-8; longer ones are split. */
export const MAX_CHUNK_BYTES = 16 << 10;

/** Longest tool result in an update, in bytes of UTF-8; the model sees the whole. */
export const MAX_RESULT_BYTES = 48 << 10;

/** Longest JSON text of a tool call's input in an update, in bytes; above it the update says that it was left out. */
export const MAX_INPUT_BYTES = 1 << 20;

/** Longest file that a file tool reads, in bytes. */
export const MAX_FILE_BYTES = 10 << 20;

/** Largest checkpoint or set of pending writes, in bytes on disk. */
export const MAX_CHECKPOINT_BYTES = 64 << 20;

/** Largest result of a tool call that is kept in case the call is run again, in bytes of JSON. */
export const MAX_KEPT_OUTCOME_BYTES = 4 << 20;

/** Most sessions that one process holds open. */
export const MAX_SESSIONS = 16;

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** Length of text in bytes of UTF-8. */
export function byteLength(text) {
  return Buffer.byteLength(text, "utf8");
}

/**
 * Cuts text to at most max bytes without splitting a character.
 * @returns {{text: string, truncated: boolean}}
 */
export function cut(text, max) {
  if (byteLength(text) <= max) return { text, truncated: false };
  const bytes = encoder.encode(text);
  let end = max;
  // Bytes of the form 10xxxxxx continue a character.
  while (end > 0 && (bytes[end] & 0xc0) === 0x80) end--;
  return { text: decoder.decode(bytes.subarray(0, end)), truncated: true };
}

/** Splits text into pieces of at most max bytes, none of which splits a character. */
export function* split(text, max) {
  let rest = text;
  while (rest !== "") {
    const piece = cut(rest, max).text;
    yield piece;
    rest = rest.slice(piece.length);
  }
}
