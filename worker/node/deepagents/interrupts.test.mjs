import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import fs from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";
import { WITHOUT_EFFECTS } from "./approval.mjs";
import { MAX_SHOWN_ARGUMENTS_BYTES, MAX_SHOWN_CALLS, MAX_SHOWN_CALLS_BYTES } from "./bounds.mjs";
import { answers, question } from "./interrupts.mjs";
import { INTERRUPT } from "./turn.mjs";
import { endsWithToolResult, lastUserText, toolNames, toolResults } from "../testing/model-endpoint.mjs";
import { PROVIDERS, conversation, metaOf, ofKind, textOf } from "../testing/turns.mjs";

const write = (name, content = name) => ({ name: "write_file", args: { file_path: `/${name}`, content } });
const remove = (name) => ({ name: "delete", args: { file_path: `/${name}` } });
const task = (description) => ({ name: "task", args: { description, subagent_type: "general-purpose" } });
const ask = (args) => ({ name: "request_input", args });

/** Answers tool results with all of them, and a text by the table. */
const scripted = (table) => (request) => {
  if (endsWithToolResult(request.body)) return { text: [`saw: ${toolResults(request.body).join(" & ")}`] };
  return table[lastUserText(request.body)] ?? { text: [`heard: ${lastUserText(request.body)}`] };
};

const asked = ({ result }) => result._meta?.[INTERRUPT];
const decide = (calls) => ({ decision: { calls } });
const rejected = (update) => update._meta?.["harness-engine/rejected"] === true;
const ends = (updates) => ofKind(updates, "tool_call_update").filter(({ status }) => status === "completed" || status === "failed");
const there = (c, name) =>
  fs.access(path.join(c.workspace, name)).then(
    () => true,
    () => false,
  );
const callOf = (updates, name) => ofKind(updates, "tool_call").find((update) => update.rawInput?.file_path === `/${name}`).toolCallId;

for (const provider of PROVIDERS) {
  const start = (t, options, table) => conversation(t, { provider, ...options, script: scripted(table) });

  test(`${provider}: a call waits, is approved in another process, and runs once`, async (t) => {
    const c = await start(t, { approval: "ALWAYS" }, { go: { text: ["writing"], tools: [write("a")] } });
    const first = await c.prompt("go");
    assert.equal(first.result.stopReason, "end_turn");
    assert.ok(first.result.usage.outputTokens > 0);
    const { kind, calls, reason } = asked(first);
    assert.deepEqual([kind, reason, calls.length], ["tool_approval", "approval_required", 1]);
    const [call] = calls;
    assert.deepEqual([call.name, call.arguments, call.allowed], ["write_file", write("a").args, ["approve", "edit", "reject"]]);
    assert.equal(call.schema.type, "object");
    assert.ok(call.schema.properties.file_path);
    assert.equal(call.toolCallId, callOf(first.updates, "a"));
    assert.deepEqual(ofKind(first.updates, "tool_call_update"), [], "it is announced as pending and no more");
    assert.equal(await there(c, "a"), false);
    await c.restart();
    const second = await c.prompt(decide([{ toolCallId: call.toolCallId, verdict: "approve" }]));
    assert.equal(asked(second), undefined);
    assert.equal(await fs.readFile(path.join(c.workspace, "a"), "utf8"), "a");
    assert.deepEqual(ofKind(second.updates, "tool_call"), [], "it is not announced again");
    assert.deepEqual(
      ofKind(second.updates, "tool_call_update").map((update) => [update.toolCallId, update.status]),
      [
        [call.toolCallId, "in_progress"],
        [call.toolCallId, "completed"],
      ],
    );
    assert.match(textOf(second.updates), /^saw: .*\/a/);
    assert.equal(c.model.requests.length, 2, "the model is not asked again");
    const lost = await c.prompt(decide([{ toolCallId: call.toolCallId, verdict: "approve" }]));
    assert.equal(lost.error.name, "InterruptLostError");
  });

  test(`${provider}: of calls that wait together each has its own verdict`, async (t) => {
    const tools = [write("kept"), write("edited"), write("refused"), { name: "ls", args: { path: "/" } }];
    const c = await start(t, { approval: "ALWAYS" }, { go: { tools } });
    const first = await c.prompt("go");
    const ids = Object.fromEntries(["kept", "edited", "refused"].map((name) => [name, callOf(first.updates, name)]));
    assert.deepEqual(asked(first).calls.map((call) => call.toolCallId), Object.values(ids), "in the order of the answer; ls does not wait");
    assert.equal(ends(first.updates).length, 1, "ls has run");
    const second = await c.prompt(
      decide([
        { toolCallId: ids.refused, verdict: "reject", message: "not that one" },
        { toolCallId: ids.edited, verdict: "edit", arguments: write("other", "changed").args },
        { toolCallId: ids.kept, verdict: "approve" },
      ]),
    );
    assert.equal(await fs.readFile(path.join(c.workspace, "kept"), "utf8"), "kept");
    assert.equal(await fs.readFile(path.join(c.workspace, "other"), "utf8"), "changed");
    assert.equal((await there(c, "edited")) || (await there(c, "refused")), false);
    const updates = {};
    for (const update of ofKind(second.updates, "tool_call_update")) (updates[update.toolCallId] ??= []).push(update);
    assert.deepEqual(Object.keys(updates).sort(), Object.values(ids).sort());
    assert.deepEqual(updates[ids.edited][0].rawInput, write("other", "changed").args);
    assert.equal("rawInput" in updates[ids.kept][0], false);
    assert.doesNotMatch(updates[ids.edited].at(-1).content[0].content.text, /changed the arguments/);
    assert.deepEqual(updates[ids.refused].map(({ status }) => status), ["failed"]);
    assert.ok(rejected(updates[ids.refused][0]));
    assert.equal(ends(second.updates).filter(rejected).length, 1);
    const results = toolResults(c.model.requests.at(-1).body);
    assert.equal(results.length, 4, "every call has one result");
    const said = results.join("\n");
    assert.match(said, /did not run\. They said: not that one/);
    assert.match(said, /person changed the arguments.*"content":"changed"/);
  });

  test(`${provider}: wrong arguments of an edit are a failure that the model sees`, async (t) => {
    const c = await start(t, { approval: "ALWAYS" }, { go: { tools: [write("a")] } });
    const [{ toolCallId }] = asked(await c.prompt("go")).calls;
    const { updates, result } = await c.prompt(decide([{ toolCallId, verdict: "edit", arguments: { file_path: 7 } }]));
    assert.equal(result.stopReason, "end_turn");
    assert.deepEqual(ends(updates).map((update) => [update.status, rejected(update)]), [["failed", false]]);
  });

  test(`${provider}: delegated agents wait together, in another process, and go on where they were`, async (t) => {
    const c = await start(t, { approval: "ALWAYS" }, { go: { tools: [task("one"), task("two"), write("root")] }, one: { text: ["first"], tools: [write("one"), write("uno")] }, two: { tools: [write("two")] } });
    const first = await c.prompt("go");
    const { calls } = asked(first);
    assert.deepEqual(calls.map((call) => call.arguments.file_path).sort(), ["/one", "/root", "/two", "/uno"]);
    await c.restart();
    const second = await c.prompt(decide(calls.map(({ toolCallId, arguments: { file_path } }) => ({ toolCallId, verdict: file_path === "/two" ? "reject" : "approve" }))));
    assert.equal(asked(second), undefined);
    assert.deepEqual([await there(c, "one"), await there(c, "uno"), await there(c, "two"), await there(c, "root")], [true, true, false, true]);
    assert.deepEqual(ofKind(second.updates, "tool_call"), []);
    const paths = (updates) => updates.map((update) => [update.toolCallId, metaOf(update).namespace?.map(({ id, toolCallId }) => ({ id, toolCallId }))]);
    const before = new Map(paths(ofKind(first.updates, "tool_call")));
    for (const [id, namespace] of paths(ends(second.updates))) assert.deepEqual(namespace, before.get(id), "the namespace stays");
    assert.equal(ends(second.updates).length, 6);
    // Only one's and two's first answers, and their second ones, and the root's two.
    assert.equal(c.model.requests.length, 6);
  });

  test(`${provider}: a form is asked for and its answer is the result`, async (t) => {
    const fields = [
      { name: "city", label: "City", kind: "string", required: true },
      { name: "days", kind: "number" },
      { name: "hotel", kind: "boolean" },
      { name: "class", kind: "choice", choices: ["first", "second"] },
    ];
    const c = await start(t, {}, { go: { tools: [ask({ prompt: "Where to?", fields })] }, plain: { tools: [ask({ prompt: "Well?" })] } });
    const first = await c.prompt("go");
    assert.deepEqual(asked(first), { kind: "form_input", prompt: "Where to?", fields, reason: "input_required" });
    for (const [form, field] of [
      [{}, "city"],
      [{ city: 7 }, "city"],
      [{ city: "x", days: "many" }, "days"],
      [{ city: "x", hotel: "yes" }, "hotel"],
      [{ city: "x", class: "third" }, "class"],
      [{ city: "x", extra: 1 }, "extra"],
      [{ city: "x", toString: 1 }, "toString"],
    ]) {
      assert.equal((await c.prompt({ decision: { form } })).error.field, `decision.form.${field}`, "a wrong answer leaves it waiting");
    }
    await c.restart();
    const second = await c.prompt({ decision: { form: { city: "Genève", days: 2.5, hotel: false, class: "second" } } });
    assert.deepEqual(JSON.parse(toolResults(c.model.requests.at(-1).body)[0]), { city: "Genève", days: 2.5, hotel: false, class: "second" });
    assert.deepEqual(ends(second.updates).map(({ status }) => status), ["completed"]);
    assert.deepEqual(asked(await c.prompt("plain")).fields, [{ name: "answer", kind: "string", required: true }]);
    await c.prompt({ decision: { form: { answer: "yes" } } });
    assert.equal(toolResults(c.model.requests.at(-1).body).at(-1), '{"answer":"yes"}');
  });

  test(`${provider}: approvals come before forms, and forms one after the other`, async (t) => {
    const c = await start(t, { approval: "ALWAYS" }, { go: { tools: [ask({ prompt: "one?" }), write("a"), ask({ prompt: "two?" })] } });
    const first = asked(await c.prompt("go"));
    assert.deepEqual([first.kind, first.calls.length], ["tool_approval", 1]);
    const second = await c.prompt(decide([{ toolCallId: first.calls[0].toolCallId, verdict: "approve" }]));
    assert.equal(await there(c, "a"), true);
    assert.equal(asked(second).prompt, "one?");
    await c.restart();
    const third = await c.prompt({ decision: { form: { answer: "1" } } });
    assert.equal(asked(third).prompt, "two?");
    const last = await c.prompt({ decision: { form: { answer: "2" } } });
    assert.equal(asked(last), undefined);
    assert.deepEqual(toolResults(c.model.requests.at(-1).body).filter((text) => text.startsWith("{")), ['{"answer":"1"}', '{"answer":"2"}']);
    assert.equal(c.model.requests.length, 2);
    assert.equal([second, third, last].flatMap(({ updates }) => ends(updates)).length, 3, "each call ends once");
  });

  test(`${provider}: another message passes over what waits, and keeps what was done beside it`, async (t) => {
    const todos = [{ content: "look", status: "completed" }];
    const c = await start(t, { approval: "ALWAYS" }, {
      go: { tools: [write("a"), { name: "write_todos", args: { todos } }, { name: "ls", args: { path: "/" } }, task("child"), ask({ prompt: "?" })] },
      child: { tools: [write("b")] },
    });
    const first = await c.prompt("go");
    assert.equal(asked(first).calls.length, 2);
    await c.restart();
    const second = await c.prompt("never mind");
    assert.equal(textOf(second.updates), "heard: never mind");
    const given = ends(second.updates);
    assert.deepEqual(given.map((update) => [metaOf(update).toolName, update.status, rejected(update)]), [
      ["write_file", "failed", true],
      ["task", "failed", true],
      ["request_input", "failed", true],
    ]);
    assert.equal((await there(c, "a")) || (await there(c, "b")), false);
    const { messages } = c.model.requests.at(-1).body;
    assert.doesNotMatch(JSON.stringify(messages), /was cancelled/, "nothing is said to be cancelled that was done");
    assert.match(JSON.stringify(messages), /did not decide on this call/);
    const results = toolResults(c.model.requests.at(-1).body);
    assert.equal(results.length, 5);
    assert.match(results.join("\n"), /todo/i);
    assert.equal((await c.prompt({ decision: { form: { answer: "late" } } })).error.name, "InterruptLostError");
    const third = await c.prompt("and?");
    assert.equal(textOf(third.updates), "heard: and?");
    assert.deepEqual(ends(third.updates), [], "it is reported once");
    assert.equal(toolResults(c.model.requests.at(-1).body).length, 5);
  });

  test(`${provider}: cancelling beside a finished call keeps its result`, async (t) => {
    const c = await start(t, {}, { go: { tools: [{ name: "ls", args: { path: "/" } }, task("slow")] }, slow: { text: ["tick"], hang: true } });
    let done = false;
    let ticked = false;
    const watch = (update) => {
      done ||= update.status === "completed";
      ticked ||= update.content?.text === "tick";
      if (done && ticked) c.sessions.cancel(c.id);
    };
    assert.equal((await c.prompt("go", { onUpdate: watch })).result.stopReason, "cancelled");
    await c.restart();
    await c.prompt("next");
    const results = toolResults(c.model.requests.at(-1).body);
    assert.equal(results.length, 2);
    assert.equal(results.filter((text) => /was cancelled/.test(text)).length, 1);
  });
}

test("more calls than can be shown at once are asked for in rounds", async (t) => {
  const names = Array.from({ length: MAX_SHOWN_CALLS + 3 }, (_, n) => `f${n}`);
  const c = await conversation(t, { approval: "ALWAYS", script: scripted({ go: { tools: names.map((name) => write(name)) } }) });
  const approve = ({ calls }) => decide(calls.map(({ toolCallId }) => ({ toolCallId, verdict: "approve" })));
  const first = asked(await c.prompt("go"));
  assert.equal(first.calls.length, MAX_SHOWN_CALLS);
  await c.restart();
  const second = await c.prompt(approve(first));
  assert.deepEqual(asked(second).calls.map((call) => call.arguments.file_path), names.slice(MAX_SHOWN_CALLS).map((name) => `/${name}`));
  const pending = ofKind(second.updates, "tool_call_update").filter(({ status }) => status === "pending");
  assert.deepEqual(pending.map(({ toolCallId }) => toolCallId), asked(second).calls.map(({ toolCallId }) => toolCallId));
  const last = await c.prompt(approve(asked(second)));
  assert.equal(asked(last), undefined);
  assert.equal((await fs.readdir(c.workspace)).length, names.length);
  assert.equal(toolResults(c.model.requests.at(-1).body).length, names.length);
});

test("pending calls do not multiply what is stored of the conversation", async (t) => {
  const names = Array.from({ length: 20 }, (_, n) => `f${n}`);
  const c = await conversation(t, { approval: "ALWAYS", script: scripted({ go: { tools: names.map((name) => write(name)) } }) });
  const words = randomBytes(150_000).toString("base64");
  await c.prompt(words);
  await c.prompt("go");
  let total = 0;
  for (const name of await fs.readdir(c.state, { recursive: true })) total += (await fs.stat(path.join(c.state, name))).size;
  // The answer repeated the message, so the conversation holds it twice.
  assert.ok(total < 2 * words.length, `${total} bytes for a conversation of ${2 * words.length}`);
});

test("which calls wait is the policy's to say", async (t) => {
  const tools = [write("a"), remove("a"), { name: "edit_file", args: { file_path: "/a", old_string: "a", new_string: "b" } }, { name: "ls", args: { path: "/" } }, { name: "no_such_tool", args: {} }];
  for (const [approval, names] of [
    ["NEVER", undefined],
    ["SENSITIVE_ONLY", ["delete"]],
    ["", ["delete"]],
    ["ALWAYS", ["write_file", "delete", "edit_file"]],
  ]) {
    const c = await conversation(t, { approval, script: scripted({ go: { tools } }) });
    assert.deepEqual(asked(await c.prompt("go"))?.calls.map(({ name }) => name), names, approval);
  }
});

test("every tool on offer is known to have effects or to have none", async (t) => {
  const withEffects = ["delete", "edit_file", "write_file"];
  const c = await conversation(t, { script: scripted({}) });
  await c.prompt("hello");
  assert.deepEqual(toolNames(c.model.requests[0].body).sort(), [...WITHOUT_EFFECTS, ...withEffects].sort());
});

test("the tool that asks for input can be left out", async (t) => {
  const c = await conversation(t, { options: { requestInput: false }, script: scripted({}) });
  await c.prompt("hello");
  assert.equal(toolNames(c.model.requests[0].body).includes("request_input"), false);
});

test("a form that cannot be shown is refused to the model", async (t) => {
  const field = { name: "a", kind: "string" };
  const bad = [
    { fields: [field] },
    { prompt: "x", fields: [field, field] },
    { prompt: "x", fields: [{ name: "a", kind: "choice" }] },
    { prompt: "x", fields: [{ ...field, choices: ["x"] }] },
    { prompt: "x", fields: [{ name: "a", kind: "choice", choices: ["\u0007"] }] },
    { prompt: "x", fields: [{ name: "a b", kind: "string" }] },
    { prompt: "x", fields: [{ name: "a", kind: "date" }] },
    { prompt: "x", fields: Array.from({ length: 65 }, (_, i) => ({ name: `f${i}`, kind: "string" })) },
  ];
  const c = await conversation(t, { script: scripted({ go: { tools: bad.map(ask) } }) });
  const first = await c.prompt("go");
  assert.equal(asked(first), undefined);
  assert.deepEqual(ends(first.updates).map(({ status }) => status), bad.map(() => "failed"));
});

const approval = (n, extra) => ({ id: `i${n}`, value: { kind: "tool_approval", toolCallId: `c${n}`, rootCallId: `c${n}`, name: "write_file", arguments: { n }, ...extra } });

test("what is shown of many and large calls is bounded", () => {
  const many = Array.from({ length: 40 }, (_, n) => approval(n));
  assert.equal(question(many).calls.length, MAX_SHOWN_CALLS);
  assert.deepEqual(question(many).calls.map(({ toolCallId }) => toolCallId), many.slice(0, MAX_SHOWN_CALLS).map(({ value }) => value.toolCallId));
  const big = (n, size) => approval(n, { arguments: { text: "é".repeat(size / 2) }, schema: { type: "object", x: "y".repeat(7_000) } });
  const { calls } = question([big(0, MAX_SHOWN_ARGUMENTS_BYTES), big(1, 20_000), big(2, 20_000), big(3, 20_000)]);
  assert.deepEqual(calls.map((call) => [call.arguments !== undefined, call.schema !== undefined]), [
    [false, true],
    [true, false],
    [true, false],
    [false, false],
  ]);
  assert.ok(Buffer.byteLength(JSON.stringify(calls)) < MAX_SHOWN_CALLS_BYTES + 1_000);
  assert.deepEqual(Object.keys(answers(many, { calls: many.slice(0, MAX_SHOWN_CALLS).map(({ value }) => ({ toolCallId: value.toolCallId, verdict: "approve" })) })).length, MAX_SHOWN_CALLS);
});

test("a decision that does not fit is refused by name", () => {
  const pending = [approval(1), approval(2)];
  const ok = (n, extra) => ({ toolCallId: `c${n}`, verdict: "approve", ...extra });
  const cases = [
    [undefined, "decision"],
    [{ other: 1 }, "decision"],
    [{}, "decision.calls"],
    [{ form: {} }, "decision.form"],
    [{ calls: {} }, "decision.calls"],
    [{ calls: [] }, "decision.calls"],
    [{ calls: [ok(1)] }, "decision.calls"],
    [{ calls: [ok(1), ok(1)] }, "decision.calls[1].toolCallId"],
    [{ calls: [ok(1), ok(3)] }, "decision.calls[1].toolCallId"],
    [{ calls: [ok(1), null] }, "decision.calls[1]"],
    [{ calls: [ok(1), ok(2, { verdict: "maybe" })] }, "decision.calls[1].verdict"],
    [{ calls: [ok(1), ok(2, { verdict: "edit" })] }, "decision.calls[1].arguments"],
    [{ calls: [ok(1), ok(2, { verdict: "edit", arguments: [] })] }, "decision.calls[1].arguments"],
    [{ calls: [ok(1), ok(2, { verdict: "edit", arguments: { x: "y".repeat(1 << 20) } })] }, "decision.calls[1].arguments"],
    [{ calls: [ok(1), ok(2, { verdict: "reject", message: 7 })] }, "decision.calls[1].message"],
    [{ calls: [ok(1), ok(2, { more: 1 })] }, "decision.calls[1]"],
  ];
  for (const [decision, field] of cases) assert.throws(() => answers(pending, decision), { name: "InvalidConstructionError", field }, JSON.stringify(decision)?.slice(0, 100));
  assert.throws(() => answers([], { calls: [] }), { name: "InterruptLostError" });
  assert.deepEqual(answers(pending, { calls: [ok(2), ok(1, { verdict: "reject", message: null })] }), { i2: { verdict: "approve" }, i1: { verdict: "reject" } });
  const form = [{ id: "f", value: { kind: "form_input", fields: [] } }];
  assert.throws(() => answers(form, { calls: [] }), { field: "decision.calls" });
  assert.throws(() => answers(form, {}), { field: "decision.form" });
});
