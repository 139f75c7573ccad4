import assert from "node:assert/strict";
import fs from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";
import { FileSaver, TURN } from "./checkpoints.mjs";
import { endsWithToolResult, lastUserText, systemText, toolNames, toolResults } from "../testing/model-endpoint.mjs";
import { PROVIDERS, conversation, metaOf, ofKind, textOf } from "../testing/turns.mjs";

/** Answers tool results with what they said, and everything else by the table. */
const scripted = (table) => (request) => {
  if (endsWithToolResult(request.body)) return { text: ["saw: ", toolResults(request.body).at(-1)] };
  const reply = table[lastUserText(request.body)];
  if (!reply) throw new Error(`no reply for ${lastUserText(request.body)}`);
  return typeof reply === "function" ? reply(request) : reply;
};

for (const provider of PROVIDERS) {
  test(`${provider}: text and reasoning stream as chunks of one message`, async (t) => {
    const c = await conversation(t, { provider, script: scripted({ hello: { thinking: ["let me ", "see"], text: ["Hel", "lo ", "é🙂"] } }) });
    const { result, updates, usages } = await c.prompt("hello");
    assert.equal(result.stopReason, "end_turn");
    assert.equal(textOf(updates), "Hello é🙂");
    assert.equal(textOf(updates, "agent_thought_chunk"), "let me see");
    const ids = new Set(ofKind(updates, "agent_message_chunk").map((update) => update.messageId));
    assert.equal(ids.size, 1);
    assert.ok([...ids][0]);
    assert.equal(usages.length, 1);
    assert.equal(usages[0].outputTokens, 9);
    assert.deepEqual(result.usage, usages[0]);
    assert.equal(systemText(c.model.requests[0].body).includes("be brief"), true);
  });

  test(`${provider}: file tools work in the workspace and report name, input and result`, async (t) => {
    const args = { file_path: "/notes/a.txt", content: "first line\n" };
    const c = await conversation(t, { provider, script: scripted({ write: { text: ["writing"], tools: [{ name: "write_file", args }] } }) });
    const { result, updates } = await c.prompt("write");
    assert.equal(result.stopReason, "end_turn");
    assert.equal(await fs.readFile(path.join(c.workspace, "notes/a.txt"), "utf8"), "first line\n");
    const [call, ...more] = ofKind(updates, "tool_call");
    assert.equal(more.length, 0);
    assert.equal(call.name, "write_file");
    assert.equal(call.kind, "edit");
    assert.deepEqual(call.rawInput, args);
    assert.equal(metaOf(call).parentMessageId, ofKind(updates, "agent_message_chunk")[0].messageId);
    const statuses = ofKind(updates, "tool_call_update").map((update) => [update.toolCallId === call.toolCallId, update.status]);
    assert.deepEqual(statuses, [
      [true, "in_progress"],
      [true, "completed"],
    ]);
    assert.match(textOf(updates), /saw: .*\/notes\/a\.txt/);
  });

  test(`${provider}: a failing tool is reported as failed, without the host's path`, async (t) => {
    const c = await conversation(t, { provider, script: scripted({ go: { tools: [{ name: "read_file", args: { file_path: "/none.txt" } }] } }) });
    const { updates } = await c.prompt("go");
    const last = ofKind(updates, "tool_call_update").at(-1);
    assert.equal(last.status, "failed");
    assert.equal(last.content[0].content.text.includes(c.workspace), false, "the host's path is not shown");
    assert.match(toolResults(c.model.requests.at(-1).body)[0], /none\.txt/);
  });

  test(`${provider}: unknown tools and refused input are failures without a stack`, async (t) => {
    const tools = [
      { name: "no_such_tool", args: {} },
      { name: "task", args: { description: 1 } },
      { name: "task", args: { description: "x", subagent_type: "nobody" } },
    ];
    const c = await conversation(t, { provider, script: scripted({ go: { tools } }) });
    const { result, updates } = await c.prompt("go");
    assert.equal(result.stopReason, "end_turn");
    const ended = ofKind(updates, "tool_call_update").filter((update) => update.status !== "in_progress");
    assert.deepEqual(
      ended.map((update) => update.status),
      ["failed", "failed", "failed"],
    );
    for (const update of ended) assert.doesNotMatch(update.content[0].content.text, /node_modules|\.js:\d|file:\/\//);
    for (const text of toolResults(c.model.requests.at(-1).body)) assert.doesNotMatch(text, /node_modules|\.js:\d|file:\/\//);
  });

  test(`${provider}: delegated agents appear as namespaces`, async (t) => {
    const delegate = (description) => ({ name: "task", args: { description, subagent_type: "general-purpose" } });
    const c = await conversation(t, {
      provider,
      script: scripted({
        delegate: { tools: [delegate("one"), delegate("two")] },
        one: { text: ["child one"] },
        two: { tools: [{ name: "write_file", args: { file_path: "/two.txt", content: "2" } }] },
      }),
    });
    const { result, updates } = await c.prompt("delegate");
    assert.equal(result.stopReason, "end_turn");
    const calls = ofKind(updates, "tool_call");
    const parents = calls.filter((call) => call.name === "task");
    assert.equal(parents.length, 2);
    const inner = updates.filter((update) => metaOf(update).namespace);
    const paths = inner.map((update) => metaOf(update).namespace);
    assert.ok(paths.every((p) => p.length === 1 && p[0].name === "general-purpose"));
    assert.deepEqual(new Set(paths.map((p) => p[0].toolCallId)), new Set(parents.map((call) => call.toolCallId)));
    assert.equal(new Set(paths.map((p) => p[0].id)).size, 2);
    const write = calls.find((call) => call.name === "write_file");
    assert.equal(metaOf(write).namespace.length, 1);
    assert.equal(await fs.readFile(path.join(c.workspace, "two.txt"), "utf8"), "2");
    assert.match(textOf(inner), /child one/);
  });

  test(`${provider}: todos are a plan`, async (t) => {
    const todos = [
      { content: "look", status: "completed" },
      { content: "leap", status: "in_progress" },
    ];
    const c = await conversation(t, { provider, script: scripted({ plan: { tools: [{ name: "write_todos", args: { todos } }] } }) });
    const { updates } = await c.prompt("plan");
    const [plan] = ofKind(updates, "plan");
    assert.deepEqual(
      plan.entries.map(({ content, status }) => ({ content, status })),
      todos,
    );
  });

  test(`${provider}: stop reasons`, async (t) => {
    const native = { anthropic: { long: "max_tokens", no: "refusal" }, openai: { long: "length", no: "content_filter" } }[provider];
    const c = await conversation(t, { provider, script: scripted({ long: { text: ["a"], stop: native.long }, no: { text: ["b"], stop: native.no }, ok: { text: ["c"] } }) });
    assert.equal((await c.prompt("long")).result.stopReason, "max_tokens");
    assert.equal((await c.prompt("no")).result.stopReason, "refusal");
    assert.equal((await c.prompt("ok")).result.stopReason, "end_turn");
  });

  test(`${provider}: a turn that only calls tools stops at the limit of steps, and the conversation goes on`, async (t) => {
    const c = await conversation(t, {
      provider,
      options: { recursionLimit: 12 },
      script: (request) => (lastUserText(request.body) === "stop" ? { text: ["fine"] } : { tools: [{ name: "ls", args: { path: "/" } }] }),
    });
    assert.equal((await c.prompt("loop")).result.stopReason, "max_turn_requests");
    const after = await c.prompt("stop");
    assert.equal(after.result.stopReason, "end_turn");
    assert.equal(textOf(after.updates), "fine");
  });

  test(`${provider}: the conversation survives another process`, async (t) => {
    const c = await conversation(t, { provider, script: (request) => ({ text: [`${request.body.messages.filter((m) => m.role === "user").length} questions`] }) });
    assert.equal(textOf((await c.prompt("first")).updates), "1 questions");
    await c.restart();
    assert.equal(textOf((await c.prompt("second")).updates), "2 questions");
  });

  test(`${provider}: cancelling in mid-text ends the model call, and the conversation goes on`, async (t) => {
    const c = await conversation(t, { provider, script: scripted({ slow: { text: ["tick ", "tock "], hang: true }, next: { text: ["here"] } }) });
    const cancel = (update) => {
      if (update.content?.text === "tock ") c.sessions.cancel(c.id);
    };
    const { result, updates } = await c.prompt("slow", { onUpdate: cancel });
    assert.equal(result.stopReason, "cancelled");
    assert.equal(textOf(updates), "tick tock ");
    const after = await c.prompt("next");
    assert.equal(textOf(after.updates), "here");
    assert.equal(c.model.requests[0].aborted, true);
  });

  test(`${provider}: cancelling a delegated agent leaves no dangling tool call`, async (t) => {
    const c = await conversation(t, {
      provider,
      script: scripted({
        delegate: { tools: [{ name: "task", args: { description: "slow", subagent_type: "general-purpose" } }] },
        slow: { text: ["tick "], hang: true },
        next: { text: ["here"] },
      }),
    });
    const cancel = (update) => {
      if (update.content?.text === "tick ") c.sessions.cancel(c.id);
    };
    assert.equal((await c.prompt("delegate", { onUpdate: cancel })).result.stopReason, "cancelled");
    await c.restart();
    const after = await c.prompt("next");
    assert.equal(textOf(after.updates), "here");
    const { messages } = c.model.requests.at(-1).body;
    assert.match(JSON.stringify(messages), /was cancelled/);
  });

  test(`${provider}: no call is repeated, whatever the endpoint answers`, async (t) => {
    for (const status of [408, 409, 429, 500, 503, 529]) {
      const c = await conversation(t, { provider, script: () => ({ status }) });
      const { error } = await c.prompt("go");
      assert.ok(error, `status ${status}`);
      assert.equal(c.model.requests.length, 1, `status ${status}`);
    }
  });

  test(`${provider}: the model is reached without a key of ours`, async (t) => {
    const c = await conversation(t, { provider, script: scripted({ hello: { text: ["hi"] } }) });
    await c.prompt("hello");
    const [request] = c.model.requests;
    assert.equal(request.provider, provider);
    assert.equal(request.headers[provider === "anthropic" ? "x-api-key" : "authorization"], provider === "anthropic" ? "none" : "Bearer none");
  });
}

test("the offered tools are the file tools, delegation and the plan; there is no shell", async (t) => {
  const c = await conversation(t, { script: scripted({ hello: { text: ["hi"] } }) });
  await c.prompt("hello");
  assert.deepEqual(toolNames(c.model.requests[0].body).sort(), ["delete", "edit_file", "glob", "grep", "ls", "read_file", "request_input", "task", "write_file", "write_todos"]);
});

test("without the to-do list its tool is not offered", async (t) => {
  const c = await conversation(t, { options: { todoList: false }, script: scripted({ hello: { text: ["hi"] } }) });
  await c.prompt("hello");
  assert.equal(toolNames(c.model.requests[0].body).includes("write_todos"), false);
});

test("options reach the model", async (t) => {
  const a = await conversation(t, { options: { maxTokens: 4096, thinkingBudgetTokens: 2048 }, script: scripted({ hello: { text: ["hi"] } }) });
  await a.prompt("hello");
  assert.equal(a.model.requests[0].body.max_tokens, 4096);
  assert.deepEqual(a.model.requests[0].body.thinking, { type: "enabled", budget_tokens: 2048 });
  const b = await conversation(t, { provider: "openai", options: { temperature: 0.25, maxTokens: 77 }, script: scripted({ hello: { text: ["hi"] } }) });
  await b.prompt("hello");
  const { body } = b.model.requests[0];
  assert.equal(body.temperature, 0.25);
  assert.equal(body.max_tokens ?? body.max_completion_tokens, 77);
});

test("usage that the endpoint does not tell stays unknown", async (t) => {
  const c = await conversation(t, { provider: "openai", script: scripted({ hello: { text: ["hi"], withoutUsage: true } }) });
  const { result, usages } = await c.prompt("hello");
  assert.deepEqual(usages, []);
  assert.equal("usage" in result, false);
});

test("a session runs one turn at a time", async (t) => {
  const c = await conversation(t, { script: scripted({ slow: { text: ["tick"], hang: true } }) });
  const second = new Promise((resolve) => {
    c.prompt("slow", {
      onUpdate: async () => {
        resolve(await c.prompt("slow"));
        c.sessions.cancel(c.id);
      },
    });
  });
  assert.equal((await second).error.code, "turn_in_progress");
});

test("a finished turn leaves few files behind, however long the conversation", async (t) => {
  const delegate = { name: "task", args: { description: "one", subagent_type: "general-purpose" } };
  const c = await conversation(t, { script: scripted({ delegate: { tools: [delegate] }, one: { text: ["child"] } }) });
  const counts = [];
  for (let turn = 0; turn < 4; turn++) {
    await c.prompt("delegate");
    counts.push((await fs.readdir(c.state, { recursive: true })).length);
  }
  assert.ok(counts.at(-1) <= counts[0] + 2, `files after each turn: ${counts}`);
});

test("every write of a turn names its turn, also those of delegated agents", async (t) => {
  const seen = [];
  t.mock.method(FileSaver.prototype, "beginTurn", () => "the turn");
  for (const name of ["put", "putWrites"]) {
    const original = FileSaver.prototype[name];
    t.mock.method(FileSaver.prototype, name, function (config, ...rest) {
      seen.push([config.configurable.checkpoint_ns ?? "", config.configurable[TURN]]);
      return original.call(this, config, ...rest);
    });
  }
  const delegate = { name: "task", args: { description: "one", subagent_type: "general-purpose" } };
  const c = await conversation(t, { script: scripted({ delegate: { tools: [delegate] }, one: { text: ["child"] } }) });
  await c.prompt("delegate");
  assert.ok(seen.some(([namespace]) => namespace !== ""));
  assert.ok(seen.length > 5 && seen.every(([, turn]) => turn === "the turn"), JSON.stringify(seen));
});

test("a long conversation is summarised for the model alone", async (t) => {
  const script = (request) => (toolNames(request.body).length === 0 ? { text: ["SUMMARY"] } : { text: ["fine"] });
  const c = await conversation(t, { script });
  const summaries = () => c.model.requests.filter((request) => toolNames(request.body).length === 0);
  const shown = [];
  for (let turn = 0; turn < 8 && summaries().length === 0; turn++) {
    const { result, updates } = await c.prompt(`turn ${turn} ${"word ".repeat(30_000)}`);
    assert.equal(result.stopReason, "end_turn");
    shown.push(textOf(updates));
  }
  assert.equal(summaries().length, 1, "a summary was asked for");
  assert.ok(shown.every((text) => text === "fine"), `shown: ${shown}`);
  await c.restart();
  const after = await c.prompt("and now?");
  assert.equal(textOf(after.updates), "fine");
  assert.match(JSON.stringify(c.model.requests.at(-1).body.messages), /SUMMARY/);
});
