import assert from "node:assert/strict";
import { test } from "node:test";
import { lastUserText } from "../testing/model-endpoint.mjs";
import { PROVIDERS, conversation, metaOf, ofKind, textOf } from "../testing/turns.mjs";

const RETRIED = "model_call_retried";

for (const provider of PROVIDERS) {
  test(`${provider}: a cut answer stands as a message of its own, and another follows`, async (t) => {
    const c = await conversation(t, { provider, script: (request, i) => (i === 0 ? { text: ["half "], cut: "socket" } : { text: ["whole"] }) });
    const { result, updates } = await c.prompt("go");
    assert.equal(result.stopReason, "end_turn");
    const kinds = updates.map((update) => (update.sessionUpdate === "notice" ? metaOf(update).notice : update.sessionUpdate));
    assert.deepEqual(kinds, ["agent_message_chunk", RETRIED, "agent_message_chunk"]);
    assert.equal(textOf(updates), "half whole");
    assert.notEqual(updates[0].messageId, updates[2].messageId);
    // What was cut off is not part of the conversation.
    await c.prompt("and now");
    assert.doesNotMatch(JSON.stringify(c.model.requests.at(-1).body), /half/);
  });

  test(`${provider}: a cut before the first byte is asked for again, too`, async (t) => {
    const c = await conversation(t, { provider, script: (request, i) => (i === 0 ? { cut: "socket" } : { text: ["whole"] }) });
    const { result, updates } = await c.prompt("go");
    assert.equal(result.stopReason, "end_turn");
    assert.equal(textOf(updates), "whole");
    assert.equal(ofKind(updates, "notice").length, 1);
  });
}

test("a tool call of a cut answer does not run, that of the next one does, once", async (t) => {
  const write = { name: "write_file", args: { file_path: "/a", content: "x" } };
  const script = (request, i) => [{ text: ["half "], tools: [write], cut: "clean" }, { tools: [write] }][i] ?? { text: ["done"] };
  const c = await conversation(t, { script });
  const { updates } = await c.prompt("go");
  assert.equal(ofKind(updates, "tool_call").length, 1);
  assert.equal(ofKind(updates, "tool_call_update").filter(({ status }) => status === "completed").length, 1);
});

test("the model of a delegated agent is asked again where it works", async (t) => {
  let cuts = 0;
  const script = (request) => {
    if (lastUserText(request.body) === "go") return request.body.messages.length > 2 ? { text: ["done"] } : { tools: [{ name: "task", args: { description: "sub", subagent_type: "general-purpose" } }] };
    return cuts++ === 0 ? { text: ["half "], cut: "socket" } : { text: ["whole"] };
  };
  const c = await conversation(t, { script });
  const { result, updates } = await c.prompt("go");
  assert.equal(result.stopReason, "end_turn");
  const [notice] = ofKind(updates, "notice");
  assert.equal(metaOf(notice).namespace.length, 1);
});

test("what the endpoint answers with an error is not asked for again", async (t) => {
  for (const reply of [{ status: 400 }, { status: 500 }, { status: 529 }, { text: ["half "], errorEvent: "overloaded_error" }]) {
    const c = await conversation(t, { script: () => reply });
    const { error, updates } = await c.prompt("go");
    assert.ok(error);
    assert.equal(c.model.requests.length, 1, JSON.stringify(reply));
    assert.equal(ofKind(updates, "notice").length, 0);
  }
});

test("a cancel between two attempts ends the turn", async (t) => {
  const c = await conversation(t, { script: () => ({ text: ["half "], cut: "socket" }) });
  const cancel = new AbortController();
  const { result } = await c.prompt("go", { signal: cancel.signal, onUpdate: (update) => update.sessionUpdate === "notice" && cancel.abort() });
  assert.equal(result.stopReason, "cancelled");
  assert.equal(c.model.requests.length, 1);
});
