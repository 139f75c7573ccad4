// The agent's files: deepagents' file backend in its confined mode, with the gaps closed that this project found by
// trying: a glob pattern could lead out of the root, messages held paths of the host, and a read had no limit.
import fs from "node:fs/promises";
import path from "node:path";
import { AsyncLocalStorage } from "node:async_hooks";
import { FilesystemBackend } from "deepagents";
import micromatch from "micromatch";
import { MAX_FILE_BYTES } from "./bounds.mjs";

/** Longest pattern of a search, in UTF-16 units. */
const MAX_PATTERN = 1_000;

/** Most entries that a search by name looks at. */
const MAX_WALKED = 50_000;

const calls = new AsyncLocalStorage();

/**
 * Runs one tool call and tells whether a file operation in it failed: deepagents reports such failures as ordinary
 * results.
 * @returns {Promise<{value: any, failed: boolean}>}
 */
export async function observeFiles(work) {
  const call = { failed: false };
  const value = await calls.run(call, work);
  return { value, failed: call.failed };
}

export class Workspace extends FilesystemBackend {
  /** @param {string} root absolute path of an existing folder, without symbolic links */
  constructor(root) {
    super({ rootDir: root, virtualMode: true, maxFileSizeMb: MAX_FILE_BYTES >> 20 });
  }

  async read(filePath, offset, limit) {
    return this.#guarded(filePath, () => super.read(filePath, offset, limit));
  }

  async readRaw(filePath) {
    const refusal = await this.#refusal(filePath);
    if (refusal) throw new Error(refusal);
    try {
      return await super.readRaw(filePath);
    } catch (error) {
      throw new Error(this.#scrub(error.message));
    }
  }

  async write(filePath, content) {
    return this.#guarded(filePath, () => super.write(filePath, content));
  }

  async edit(filePath, oldString, newString, replaceAll) {
    return this.#guarded(filePath, () => super.edit(filePath, oldString, newString, replaceAll));
  }

  async delete(filePath) {
    return this.#report(await super.delete(filePath));
  }

  // The pattern is matched against the names of real files and never reaches the file system: as a path to walk, a
  // pattern such as `link/**` or `{..,a}/*` leads out of the root.
  async glob(pattern, searchPath = "/") {
    if (typeof pattern !== "string" || pattern.length > MAX_PATTERN) return this.#report({ error: "The pattern is too long" });
    let from;
    try {
      from = await this.assertRealPathWithinRoot(this.resolvePath(searchPath), searchPath, { includeLeaf: true });
    } catch {
      return { files: [] };
    }
    const matches = micromatch.matcher(pattern.replace(/^\/+/, ""), { dot: true });
    const files = [];
    for await (const file of walk(from)) {
      if (!matches(path.relative(from, file))) continue;
      const stat = await fs.lstat(file).catch(() => undefined);
      if (stat) files.push({ path: this.#virtual(file), is_dir: false, size: stat.size, modified_at: stat.mtime.toISOString() });
    }
    return { files: files.sort((a, b) => (a.path < b.path ? -1 : 1)) };
  }

  // No search program of the host is started, whatever happens to be installed there.
  async ripgrepSearch() {
    return null;
  }

  async #guarded(filePath, work) {
    const refusal = await this.#refusal(filePath);
    return this.#report(refusal ? { error: refusal } : await work());
  }

  /** Why a path must not be opened: too large, or something that is not a file, such as a pipe that would block. */
  async #refusal(filePath) {
    let stat;
    try {
      const resolved = this.resolvePath(filePath);
      await this.assertRealPathWithinRoot(resolved, filePath, { includeLeaf: true });
      stat = await fs.stat(resolved);
    } catch {
      return undefined; // the backend says what is wrong with it
    }
    if (!stat.isFile() && !stat.isDirectory()) return `Error: '${filePath}' is not a regular file`;
    if (stat.size > MAX_FILE_BYTES) return `Error: '${filePath}' is larger than ${MAX_FILE_BYTES >> 20} MiB`;
    return undefined;
  }

  #virtual(file) {
    return `/${path.relative(this.cwd, file)}`;
  }

  #report(result) {
    if (!result.error) return result;
    const call = calls.getStore();
    if (call) call.failed = true;
    return { ...result, error: this.#scrub(result.error) };
  }

  /** Takes the host's path of the root out of a message: the agent's paths begin at its root. */
  #scrub(message) {
    return message.replaceAll(this.cwd + path.sep, "/").replaceAll(this.cwd, "/");
  }
}

/** Files below a folder; links are not followed. Ends after MAX_WALKED entries. */
async function* walk(folder, budget = { left: MAX_WALKED }) {
  const entries = await fs.readdir(folder, { withFileTypes: true }).catch(() => []);
  for (const entry of entries) {
    if (budget.left-- <= 0) return;
    const full = path.join(folder, entry.name);
    if (entry.isDirectory()) yield* walk(full, budget);
    else if (entry.isFile()) yield full;
  }
}
