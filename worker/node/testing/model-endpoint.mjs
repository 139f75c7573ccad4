// A model endpoint for tests: Anthropic Messages and OpenAI Chat Completions on loopback, streaming, answering each
// request with what the test's script returns for it.
import http from "node:http";
import { once } from "node:events";

/**
 * @typedef {object} Reply
 * @property {string[]} [text] deltas of the answer
 * @property {string[]} [thinking] deltas of reasoning that precede it
 * @property {{name: string, args: object, id?: string}[]} [tools] tool calls that end it
 * @property {string} [stop] stop reason in the provider's own words; a fitting one when absent
 * @property {number} [status] answer with this HTTP status instead
 * @property {object} [headers] response headers for status
 * @property {object} [body] response body for status
 * @property {"socket" | "clean"} [cut] break off after the deltas: by destroying the socket, or by a clean end
 * @property {string} [errorEvent] send an in-stream error event of this type after the deltas
 * @property {boolean} [hang] after the deltas, wait until the client goes away
 * @property {boolean} [withoutUsage] leave usage out
 */

/** One running endpoint. `requests` holds every request that it saw: {provider, path, headers, body, aborted}. */
export class ModelEndpoint {
  #server;
  #sequence = 0;
  requests = [];

  /** @param {(request: object, index: number) => Reply | Promise<Reply>} script */
  constructor(script) {
    this.script = script;
    this.#server = http.createServer((request, response) => {
      this.#serve(request, response).catch((error) => response.destroy(error));
    });
  }

  async listen() {
    this.#server.listen(0, "127.0.0.1");
    await once(this.#server, "listening");
    this.url = `http://127.0.0.1:${this.#server.address().port}`;
    return this;
  }

  async close() {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, "close");
  }

  async #serve(request, response) {
    let raw = "";
    for await (const chunk of request) raw += chunk;
    const provider = /^\/anthropic\/v1\/messages(\?|$)/.test(request.url)
      ? "anthropic"
      : /^\/openai\/v1\/chat\/completions(\?|$)/.test(request.url)
        ? "openai"
        : undefined;
    const seen = { provider, path: request.url, headers: request.headers, body: raw ? JSON.parse(raw) : null, aborted: false };
    this.requests.push(seen);
    const gone = new Promise((resolve) =>
      response.on("close", () => {
        seen.aborted = !response.writableFinished;
        resolve();
      }),
    );
    if (!provider) return send(response, 404, { error: { type: "not_found_error", message: "no such path" } });
    const reply = await this.script(seen, this.requests.length - 1);
    if (reply.status) return send(response, reply.status, reply.body ?? failure(provider, reply.status), reply.headers);
    response.writeHead(200, { "content-type": "text/event-stream" });
    const id = ++this.#sequence;
    const frames = provider === "anthropic" ? anthropicFrames(id, reply) : openaiFrames(id, reply);
    for (const frame of frames.before) response.write(frame);
    if (reply.hang) return gone;
    if (reply.cut === "socket") {
      // Let the frames leave before the connection is reset.
      await new Promise((resolve) => setImmediate(resolve));
      return response.destroy();
    }
    if (reply.cut === "clean") return response.end();
    for (const frame of frames.after) response.write(frame);
    response.end();
  }
}

/** Text of the last user message that is not a tool result, in either provider's shape. */
export function lastUserText(body) {
  for (const message of [...body.messages].reverse()) {
    if (message.role !== "user") continue;
    const text = plain(message.content);
    if (text) return text;
  }
  return "";
}

/** Texts of the tool results in the request, oldest first. */
export function toolResults(body) {
  return body.messages.flatMap((message) => {
    if (message.role === "tool") return [plain(message.content)];
    if (message.role !== "user" || !Array.isArray(message.content)) return [];
    return message.content
      .filter((block) => block.type === "tool_result")
      .map((block) => (typeof block.content === "string" ? block.content : plain(block.content)));
  });
}

/** Whether the last message of the request is a tool result. */
export function endsWithToolResult(body) {
  const last = body.messages.at(-1);
  return last.role === "tool" || (Array.isArray(last.content) && last.content.some((block) => block.type === "tool_result"));
}

/** System prompt of the request as text. */
export function systemText(body) {
  if (body.system !== undefined) return plain(body.system);
  return body.messages
    .filter((message) => message.role === "system" || message.role === "developer")
    .map((message) => plain(message.content))
    .join("\n");
}

/** Names of the tools that the request offers. */
export function toolNames(body) {
  return (body.tools ?? []).map((tool) => tool.function?.name ?? tool.name);
}

function plain(content) {
  if (typeof content === "string") return content;
  return (content ?? [])
    .filter((block) => block.type === "text")
    .map((block) => block.text)
    .join("\n");
}

function send(response, status, body, headers = {}) {
  response.writeHead(status, { "content-type": "application/json", ...headers });
  response.end(JSON.stringify(body));
}

function failure(provider, status) {
  const message = `upstream said no: /srv/secret/path ${status}`;
  return provider === "anthropic"
    ? { type: "error", error: { type: "api_error", message } }
    : { error: { type: "fake", code: String(status), message } };
}

const sse = (data, event) => (event ? `event: ${event}\n` : "") + `data: ${typeof data === "string" ? data : JSON.stringify(data)}\n\n`;

function anthropicFrames(id, reply) {
  const usage = { input_tokens: 11, output_tokens: 1, cache_creation_input_tokens: 2, cache_read_input_tokens: 3 };
  const ev = (data) => sse(data, data.type);
  const before = [
    ev({
      type: "message_start",
      message: { id: `msg_${id}`, type: "message", role: "assistant", model: "fake", content: [], stop_reason: null, stop_sequence: null, usage },
    }),
  ];
  let index = 0;
  if (reply.thinking) {
    before.push(ev({ type: "content_block_start", index, content_block: { type: "thinking", thinking: "", signature: "" } }));
    for (const thinking of reply.thinking) before.push(ev({ type: "content_block_delta", index, delta: { type: "thinking_delta", thinking } }));
    before.push(ev({ type: "content_block_delta", index, delta: { type: "signature_delta", signature: "c2ln" } }));
    before.push(ev({ type: "content_block_stop", index: index++ }));
  }
  if (reply.text) {
    before.push(ev({ type: "content_block_start", index, content_block: { type: "text", text: "" } }));
    for (const text of reply.text) before.push(ev({ type: "content_block_delta", index, delta: { type: "text_delta", text } }));
    before.push(ev({ type: "content_block_stop", index: index++ }));
  }
  (reply.tools ?? []).forEach((tool, n) => {
    before.push(ev({ type: "content_block_start", index, content_block: { type: "tool_use", id: tool.id ?? `toolu_${id}_${n}`, name: tool.name, input: {} } }));
    for (const partial_json of pieces(JSON.stringify(tool.args))) before.push(ev({ type: "content_block_delta", index, delta: { type: "input_json_delta", partial_json } }));
    before.push(ev({ type: "content_block_stop", index: index++ }));
  });
  if (reply.errorEvent) return { before, after: [ev({ type: "error", error: { type: reply.errorEvent, message: "secret upstream text" } })] };
  const stop_reason = reply.stop ?? (reply.tools ? "tool_use" : "end_turn");
  return {
    before,
    after: [ev({ type: "message_delta", delta: { stop_reason, stop_sequence: null }, usage: { output_tokens: 9 } }), ev({ type: "message_stop" })],
  };
}

function openaiFrames(id, reply) {
  const base = { id: `chatcmpl-${id}`, object: "chat.completion.chunk", created: 1, model: "fake" };
  const chunk = (delta, finish_reason = null) => sse({ ...base, choices: [{ index: 0, delta, finish_reason }] });
  const before = [chunk({ role: "assistant", content: "" })];
  for (const reasoning_content of reply.thinking ?? []) before.push(chunk({ reasoning_content }));
  for (const content of reply.text ?? []) before.push(chunk({ content }));
  (reply.tools ?? []).forEach((tool, index) => {
    before.push(chunk({ tool_calls: [{ index, id: tool.id ?? `call_${id}_${index}`, type: "function", function: { name: tool.name, arguments: "" } }] }));
    for (const piece of pieces(JSON.stringify(tool.args))) before.push(chunk({ tool_calls: [{ index, function: { arguments: piece } }] }));
  });
  if (reply.errorEvent) return { before, after: [sse({ error: { type: reply.errorEvent, message: "secret upstream text" } })] };
  const after = [chunk({}, reply.stop ?? (reply.tools ? "tool_calls" : "stop"))];
  if (!reply.withoutUsage) {
    const usage = { prompt_tokens: 11, completion_tokens: 9, total_tokens: 20, prompt_tokens_details: { cached_tokens: 3 }, completion_tokens_details: { reasoning_tokens: 4 } };
    after.push(sse({ ...base, choices: [], usage }));
  }
  after.push(sse("[DONE]"));
  return { before, after };
}

function pieces(text, size = 24) {
  const out = [];
  for (let at = 0; at < text.length; at += size) out.push(text.slice(at, at + size));
  return out;
}
