// The agent's files: deepagents' file backend in its confined mode, with the gaps closed that this project found by
// trying: a glob pattern could name folders above the root, messages held paths of the host, and a read had no limit.
import fs from "node:fs/promises";
import path from "node:path";
import { AsyncLocalStorage } from "node:async_hooks";
import { FilesystemBackend } from "deepagents";
import micromatch from "micromatch";
import { MAX_FILE_BYTES } from "./bounds.mjs";

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

  async glob(pattern, searchPath = "/") {
    if (climbs(pattern)) return this.#report({ error: `Pattern '${pattern}' must not contain '..'` });
    const result = await super.glob(pattern, searchPath);
    const inside = await Promise.all((result.files ?? []).map((file) => this.#isInside(file.path)));
    return { ...result, files: (result.files ?? []).filter((_, index) => inside[index]) };
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
      stat = await fs.stat(this.resolvePath(filePath));
    } catch {
      return undefined; // the backend says what is wrong with it
    }
    if (!stat.isFile() && !stat.isDirectory()) return `Error: '${filePath}' is not a regular file`;
    if (stat.size > MAX_FILE_BYTES) return `Error: '${filePath}' is larger than ${MAX_FILE_BYTES >> 20} MiB`;
    return undefined;
  }

  /** Whether what is at a virtual path is really below the root. */
  async #isInside(virtual) {
    try {
      const [root, real] = await Promise.all([fs.realpath(this.cwd), fs.realpath(this.resolvePath(virtual))]);
      return real.startsWith(root + path.sep);
    } catch {
      return false;
    }
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

/** Whether a pattern, or what its braces expand to, steps up a folder. */
function climbs(pattern) {
  if (typeof pattern !== "string" || pattern.length > 1000) return true;
  return micromatch.braces(pattern, { expand: true }).some((expanded) => expanded.includes(".."));
}
