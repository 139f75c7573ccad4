// A client of the Agent Client Protocol that starts the agent as the driver does. It answers no request of the agent.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const MAIN = fileURLToPath(new URL("../deepagents/main.mjs", import.meta.url));

export class AcpClient {
  /** Id of the last request. */
  lastId = 0;
  #pending = new Map();
  updates = [];
  notifications = [];
  /** Lines of standard output that were not JSON. */
  garbage = [];

  constructor(t, env) {
    this.process = spawn(process.execPath, [MAIN], { env: { PATH: process.env.PATH, ...env }, stdio: ["pipe", "pipe", "pipe"] });
    this.stderr = "";
    this.process.stderr.setEncoding("utf8").on("data", (data) => (this.stderr += data));
    this.process.stdin.on("error", () => {});
    this.closed = once(this.process, "close").then(([code, signal]) => {
      for (const { reject } of this.#pending.values()) reject(new Error(`agent ended: ${code ?? signal} ${this.stderr}`));
      return { code, signal };
    });
    createInterface({ input: this.process.stdout }).on("line", (line) => this.#line(line));
    t.after(() => this.process.kill("SIGKILL"));
  }

  call(method, params) {
    const id = ++this.lastId;
    return new Promise((resolve, reject) => {
      this.#pending.set(id, { resolve, reject });
      this.write({ jsonrpc: "2.0", id, method, params });
    });
  }

  notify(method, params) {
    this.write({ jsonrpc: "2.0", method, params });
  }

  write(message) {
    this.onWrite?.(message);
    this.process.stdin.write(typeof message === "string" ? message : `${JSON.stringify(message)}\n`);
  }

  /** Resolves with the first update that fits, also one that came already. */
  async update(fits) {
    for (;;) {
      const found = this.updates.find(fits);
      if (found) return found;
      await new Promise((resolve) => (this.onUpdate = resolve));
    }
  }

  #line(line) {
    let message;
    try {
      message = JSON.parse(line);
    } catch {
      this.garbage.push(line);
      return;
    }
    this.onMessage?.(message);
    if (message.method === "session/update") {
      this.updates.push(message.params.update);
      this.onUpdate?.();
    } else if (message.method) this.notifications.push(message);
    else {
      const waiting = this.#pending.get(message.id);
      this.#pending.delete(message.id);
      if (message.error) waiting?.reject(Object.assign(new Error(message.error.message), { rpc: message.error }));
      else waiting?.resolve(message.result);
    }
  }
}
