// Files that are whole or absent after a crash: written beside their place, synced, renamed over it, and the folder
// synced, so that a name never leads to half of its content.
import fs from "node:fs/promises";
import path from "node:path";
import { createHash, randomBytes } from "node:crypto";
import { promisify } from "node:util";
import { brotliCompress, brotliDecompress, constants } from "node:zlib";

const compress = promisify(brotliCompress);
const decompress = promisify(brotliDecompress);

/**
 * A checkpoint holds the conversation once more for each call that is pending. A window of 16 MiB finds these copies;
 * the low quality is fast and makes up for its time with what need not be synced.
 */
const COMPRESSION = { [constants.BROTLI_PARAM_QUALITY]: 3, [constants.BROTLI_PARAM_LGWIN]: 24 };

/** Largest JSON text that is read, in bytes. */
const MAX_JSON_BYTES = 128 << 20;

/** Files with this prefix are unfinished and are removed at start. */
const UNFINISHED = ".unfinished-";

/** Format of the first line of a file. */
const FORMAT = 2;

/** A file of ours that cannot be what was written. */
export class CorruptFileError extends Error {
  constructor(name, options) {
    super(`stored file ${name} is damaged`, options);
    this.name = "CorruptFileError";
  }
}

/** A value that is too large to be kept. */
export class TooLargeError extends Error {
  constructor(bytes, max) {
    super(`value of ${bytes} bytes exceeds the limit of ${max} bytes`);
    this.name = "TooLargeError";
  }
}

/**
 * Stores value as JSON under folder/name and returns only when it is durable.
 * @param {number} max largest JSON text, in bytes
 */
export async function writeJson(folder, name, value, max) {
  const text = Buffer.from(JSON.stringify(value), "utf8");
  if (text.length > max) throw new TooLargeError(text.length, max);
  const body = await compress(text, { params: { ...COMPRESSION, [constants.BROTLI_PARAM_SIZE_HINT]: text.length } });
  await writeBytes(folder, name, body, body.length);
}

/** Stores bytes under folder/name and returns only when they are durable. @param {Buffer} body */
export async function writeBytes(folder, name, body, max) {
  if (body.length > max) throw new TooLargeError(body.length, max);
  const header = Buffer.from(`${JSON.stringify({ format: FORMAT, sha256: digest(body) })}\n`, "utf8");
  await makeFolder(folder);
  const unfinished = path.join(folder, UNFINISHED + randomBytes(8).toString("hex"));
  try {
    const file = await fs.open(unfinished, "wx", 0o600);
    try {
      await file.writev([header, body]);
      await file.sync();
    } finally {
      await file.close();
    }
    await fs.rename(unfinished, path.join(folder, name));
  } catch (error) {
    await fs.rm(unfinished, { force: true });
    throw error;
  }
  await syncFolder(folder);
}

/** Reads what writeJson stored; undefined when there is no such file. */
export async function readJson(folder, name) {
  const body = await readBytes(folder, name);
  try {
    return body && JSON.parse((await decompress(body, { maxOutputLength: MAX_JSON_BYTES })).toString("utf8"));
  } catch (cause) {
    throw new CorruptFileError(name, { cause });
  }
}

/** Reads what writeBytes stored; undefined when there is no such file. */
export async function readBytes(folder, name) {
  let bytes;
  try {
    bytes = await fs.readFile(path.join(folder, name));
  } catch (error) {
    if (error.code === "ENOENT") return undefined;
    throw error;
  }
  const end = bytes.indexOf(0x0a);
  try {
    const header = JSON.parse(bytes.subarray(0, end).toString("utf8"));
    const body = bytes.subarray(end + 1);
    if (header.format !== FORMAT || header.sha256 !== digest(body)) throw new Error("digest differs");
    return body;
  } catch (cause) {
    throw new CorruptFileError(name, { cause });
  }
}

/** Names in a folder, sorted; none when the folder does not exist. Unfinished files are left out. */
export async function listNames(folder) {
  try {
    return (await fs.readdir(folder)).filter((name) => !name.startsWith(UNFINISHED)).sort();
  } catch (error) {
    if (error.code === "ENOENT" || error.code === "ENOTDIR") return [];
    throw error;
  }
}

/** Removes what a killed process left unfinished, in the folder and below. */
export async function removeUnfinished(folder) {
  let entries;
  try {
    entries = await fs.readdir(folder, { withFileTypes: true });
  } catch (error) {
    if (error.code === "ENOENT") return;
    throw error;
  }
  for (const entry of entries) {
    const full = path.join(folder, entry.name);
    if (entry.isDirectory()) await removeUnfinished(full);
    else if (entry.name.startsWith(UNFINISHED)) await fs.rm(full, { force: true });
  }
}

/** Makes a folder and what is missing above it, durably. */
async function makeFolder(folder) {
  const first = await fs.mkdir(folder, { recursive: true, mode: 0o700 });
  if (first === undefined) return;
  // Every new folder's entry lives in its parent.
  for (let at = folder; at.length >= first.length; at = path.dirname(at)) await syncFolder(path.dirname(at));
}

async function syncFolder(folder) {
  const handle = await fs.open(folder, "r");
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

function digest(bytes) {
  return createHash("sha256").update(bytes).digest("hex");
}
