// Turns the parts of a LangGraph stream into updates of the Agent Client Protocol. One translator serves one turn.
import { MAX_CHUNK_BYTES, MAX_INPUT_BYTES, MAX_RESULT_BYTES, byteLength, cut, split } from "./bounds.mjs";
import { META } from "./construction.mjs";
import { REQUEST_INPUT } from "./input.mjs";
import { STOP_REASON } from "./models.mjs";
import { MODEL_RETRIED } from "./retry.mjs";
import { TOOL_ENDED, TOOL_STARTED } from "./tools.mjs";

/** Node of the graph that calls the model. */
const MODEL_NODE = "model_request";

/** The tool that hands work to another agent. */
const DELEGATE = "task";

/** Key in a tool_call_update's `_meta`: a person did not let the call run. */
const REJECTED = `${META}/rejected`;

/** The same: nobody can tell whether the call had its effects. */
const OUTCOME_UNKNOWN = `${META}/outcomeUnknown`;

/** ACP's kinds of the tools of deepagents. */
const KINDS = {
  ls: "search",
  read_file: "read",
  write_file: "edit",
  edit_file: "edit",
  delete: "delete",
  glob: "search",
  grep: "search",
  write_todos: "think",
  [REQUEST_INPUT]: "other",
};

export class Translator {
  /** Why the root's last answer ended, as one of ACP's stop reasons. */
  stopReason = "end_turn";
  /** Whether the graph waits for a person. */
  interrupted = false;
  #usage = { inputTokens: 0, outputTokens: 0 };
  #metered = false;
  #meters = new Map(); // message id -> what its chunks said of usage
  #calls = new Set();
  #delegates = new Map(); // segment of a namespace -> the delegated agent behind it

  #resumed;

  /** @param {{resumed?: boolean}} [options] resumed: the turn goes on after an interrupt */
  constructor({ resumed = false } = {}) {
    this.#resumed = resumed;
  }

  /** Tokens of the turn so far; undefined while nothing is known. */
  get usage() {
    return this.#metered ? { ...this.#usage } : undefined;
  }

  /**
   * Translates one part of the stream.
   * @param {string[]} namespace LangGraph's namespace of the part
   * @param {"messages" | "updates" | "custom"} mode
   * @yields {object} session updates; {usage} is told apart by its `usage` field
   */
  *translate(namespace, mode, data) {
    const path = this.#path(namespace);
    if (mode === "messages") yield* this.#chunk(path, ...data);
    else if (mode === "updates") yield* this.#step(path, data);
    else if (data?.type === TOOL_STARTED) yield* this.#toolStarted(path, data);
    else if (data?.type === TOOL_ENDED) yield this.#toolEnded(path, data);
    else if (data?.type === MODEL_RETRIED) yield retried(path);
  }

  *#chunk(path, message, metadata) {
    if (message.getType?.() !== "ai" || metadata?.langgraph_node !== MODEL_NODE) return;
    this.#meter(message);
    for (const { kind, text } of pieces(message)) {
      const sessionUpdate = kind === "thought" ? "agent_thought_chunk" : "agent_message_chunk";
      for (const part of split(text, MAX_CHUNK_BYTES)) {
        yield { sessionUpdate, messageId: message.id, content: { type: "text", text: part }, ...meta(path) };
      }
    }
  }

  *#step(path, nodes) {
    for (const [node, update] of Object.entries(nodes)) {
      if (node === "__interrupt__") this.interrupted = true;
      if (node === MODEL_NODE) yield* this.#answer(path, update?.messages?.at(-1));
      if (Array.isArray(update?.todos)) yield plan(path, update.todos);
    }
  }

  *#answer(path, message) {
    if (!message) return;
    if (path.length === 0) this.stopReason = message.response_metadata?.[STOP_REASON] ?? "end_turn";
    for (const call of message.tool_calls ?? []) yield* this.#announce(path, call.id, call.name, call.args, message.id);
    const meter = this.#meters.get(message.id);
    if (meter) {
      this.#meters.delete(message.id);
      this.#metered = true;
      for (const [name, tokens] of Object.entries(meter)) this.#usage[name] = (this.#usage[name] ?? 0) + tokens;
      yield { usage: this.usage };
    }
  }

  *#toolStarted(path, { toolCallId, name, args, edited, task }) {
    // A call is announced with the answer that asks for it. Where a turn goes on, that was in the turn before.
    if (this.#resumed) this.#calls.add(toolCallId);
    else yield* this.#announce(path, toolCallId, name, args);
    if (name === DELEGATE && task) {
      const agent = typeof args?.subagent_type === "string" ? cut(args.subagent_type, 100).text : name;
      this.#delegates.set(task, { id: task.split(":").at(-1), name: agent, toolCallId });
    }
    const rawInput = edited && inputFits(args) ? { rawInput: args } : {};
    yield { sessionUpdate: "tool_call_update", toolCallId, status: "in_progress", ...rawInput, ...meta(path, { toolName: name }) };
  }

  #toolEnded(path, { toolCallId, name, failed, rejected, unknown, content }) {
    const { text, truncated } = cut(plain(content), MAX_RESULT_BYTES);
    return {
      sessionUpdate: "tool_call_update",
      toolCallId,
      status: failed ? "failed" : "completed",
      content: [{ type: "content", content: { type: "text", text } }],
      ...meta(path, { toolName: name, ...(truncated && { truncated }) }, { ...(rejected && { [REJECTED]: true }), ...(unknown && { [OUTCOME_UNKNOWN]: true }) }),
    };
  }

  /** A call that a turn before announced and that waits for a person. */
  stillWaiting({ toolCallId, name }) {
    return { sessionUpdate: "tool_call_update", toolCallId, status: "pending", ...meta([], { toolName: name }) };
  }

  /** The end of a call that a turn before left open and that will not run. */
  givenUp({ toolCallId, name, content }) {
    return this.#toolEnded([], { toolCallId, name, content, failed: true, rejected: true });
  }

  /** Announces a call once, whether its answer or its start is seen first. */
  *#announce(path, toolCallId, name, args, parentMessageId) {
    if (this.#calls.has(toolCallId)) return;
    this.#calls.add(toolCallId);
    const input = args ?? {};
    const fits = inputFits(input);
    yield {
      sessionUpdate: "tool_call",
      toolCallId,
      title: name,
      name,
      kind: KINDS[name] ?? "other",
      status: "pending",
      ...(fits && { rawInput: input }),
      ...meta(path, { toolName: name, ...(parentMessageId && { parentMessageId }), ...(!fits && { inputOmitted: true }) }),
    };
  }

  /**
   * Notes usage. Providers report it in several chunks of one message, of which later ones repeat or complete earlier
   * ones, so the largest of each count is the count.
   */
  #meter({ id, usage_metadata: usage }) {
    if (!usage) return;
    const meter = this.#meters.get(id) ?? {};
    const note = (name, tokens) => {
      if (Number.isSafeInteger(tokens) && tokens >= 0) meter[name] = Math.max(meter[name] ?? 0, tokens);
    };
    note("inputTokens", usage.input_tokens);
    note("outputTokens", usage.output_tokens);
    note("cachedReadTokens", usage.input_token_details?.cache_read);
    note("thoughtTokens", usage.output_token_details?.reasoning);
    this.#meters.set(id, meter);
  }

  #path(namespace) {
    return namespace.map((segment) => this.#delegates.get(segment)).filter((delegate) => delegate !== undefined);
  }
}

function plan(path, todos) {
  return {
    sessionUpdate: "plan",
    // The protocol wants a priority; deepagents has none, and the driver leaves this one out.
    entries: todos.slice(0, 200).map(({ content, status }) => ({ content: cut(String(content), 2_000).text, status, priority: "medium" })),
    ...meta(path),
  };
}

/** The answer before this was cut off, and stands as it is. */
function retried(path) {
  return {
    sessionUpdate: "notice",
    severity: "warning",
    title: "The model's answer was cut off. The agent asks again.",
    ...meta(path, { notice: "model_call_retried" }),
  };
}

const inputFits = (input) => byteLength(JSON.stringify(input)) <= MAX_INPUT_BYTES;

function meta(path, fields = {}, others = {}) {
  const ours = { ...fields, ...(path.length > 0 && { namespace: path }) };
  const all = { ...(Object.keys(ours).length > 0 && { [META]: ours }), ...others };
  return Object.keys(all).length > 0 ? { _meta: all } : {};
}

/** The text and thoughts of a message chunk, in order. */
function* pieces(message) {
  const { reasoning_content: reasoning } = message.additional_kwargs ?? {};
  if (typeof reasoning === "string" && reasoning !== "") yield { kind: "thought", text: reasoning };
  if (typeof message.content === "string") {
    if (message.content !== "") yield { kind: "text", text: message.content };
    return;
  }
  for (const block of message.content) {
    if (block.type === "text" && block.text) yield { kind: "text", text: block.text };
    else if (block.type === "thinking" && block.thinking) yield { kind: "thought", text: block.thinking };
    else if (block.type === "reasoning" && block.reasoning) yield { kind: "thought", text: block.reasoning };
  }
}

/** A tool result as text; what is not text is named, not shown. */
function plain(content) {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return JSON.stringify(content) ?? "";
  return content.map((block) => (typeof block === "string" ? block : (block.text ?? `[${block.mimeType ?? block.mime_type ?? block.type ?? "content"}]`))).join("\n");
}
