import assert from "node:assert/strict";
import fs from "node:fs/promises";
import path from "node:path";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { MAX_FILES_BYTES, MAX_LINE_BYTES } from "./bounds.mjs";
import { AcpClient } from "../testing/acp-client.mjs";
import { endsWithToolResult, lastUserText, toolResults } from "../testing/model-endpoint.mjs";
import { endpoint, scratch, textOf } from "../testing/turns.mjs";

const construction = { systemPrompt: "be brief", model: { provider: "anthropic", id: "fake-model" }, options: {} };
const meta = { "harness-engine": { construction } };

const ignoreMissing = (error) => assert.equal(error.code, "ENOENT");

/** The parts of the state folder that make up a conversation; the adapter names the same. */
const STATE = ["attachments", "checkpoints", "sessions"];

/** An agent process with a workspace; `start` starts another one on the same state. */
async function setup(t, script) {
  const folder = await scratch(t);
  const cwd = path.join(folder, "workspace");
  await fs.mkdir(cwd);
  const model = await endpoint(t, script);
  const env = { HARNESS_STATE: path.join(folder, "state"), MODEL_URL: model.url };
  const start = async () => {
    const client = new AcpClient(t, env);
    client.initialized = await client.call("initialize", { protocolVersion: 1, clientCapabilities: { fs: { readTextFile: false, writeTextFile: false } } });
    return client;
  };
  const client = await start();
  const prompt = (c, sessionId, text) => c.call("session/prompt", { sessionId, prompt: [{ type: "text", text }] });
  return { folder, model, cwd, client, start, prompt };
}

const questions = (request) => request.body.messages.filter((message) => message.role === "user").length;

test("a conversation, killed in mid-turn and resumed by another process", async (t) => {
  const script = (request) => (lastUserText(request.body) === "slow" ? { text: ["tick"], hang: true } : { text: [`${questions(request)} questions`] });
  const { cwd, client, start, prompt } = await setup(t, script);
  const { version } = JSON.parse(readFileSync(new URL("../node_modules/deepagents/package.json", import.meta.url), "utf8"));
  assert.deepEqual(client.initialized.agentInfo, { name: "deepagents", title: "Deep Agents", version });
  assert.equal(client.initialized.protocolVersion, 1);
  assert.deepEqual(client.initialized.agentCapabilities.sessionCapabilities, { resume: {}, close: {} });

  const { sessionId } = await client.call("session/new", { cwd, mcpServers: [], _meta: meta });
  const first = await prompt(client, sessionId, "first");
  assert.equal(first.stopReason, "end_turn");
  assert.equal(textOf(client.updates), "1 questions");
  const usage = client.notifications.find((message) => message.method === "_harness-engine/usage");
  assert.equal(usage.params.sessionId, sessionId);
  assert.equal(usage.params.usage.outputTokens, 9);
  assert.equal(first.usage.outputTokens, 9);

  const dying = prompt(client, sessionId, "slow");
  await client.update((update) => update.content?.text === "tick");
  client.process.kill("SIGKILL");
  await assert.rejects(dying);

  const second = await start();
  await assert.rejects(prompt(second, sessionId, "x"), (error) => error.rpc.code === -32002, "it must be resumed first");
  await second.call("session/resume", { sessionId, cwd, mcpServers: [], _meta: meta });
  await prompt(second, sessionId, "third");
  assert.match(textOf(second.updates), /^[23] questions$/);
  assert.deepEqual([...client.garbage, ...second.garbage], []);
  second.process.stdin.end();
  assert.deepEqual(await second.closed, { code: 0, signal: null });
});

test("an interrupt survives SIGKILL and its host", async (t) => {
  const call = { name: "delete", args: { file_path: "/old.txt" } };
  const script = ({ body }) => (endsWithToolResult(body) ? { text: [toolResults(body).at(-1)] } : lastUserText(body) === "go" ? { tools: [call] } : { text: [`${questions({ body })} questions`] });
  const { cwd, client, prompt, folder, model } = await setup(t, script);
  await fs.writeFile(path.join(cwd, "old.txt"), "x");
  const { sessionId } = await client.call("session/new", { cwd, mcpServers: [], _meta: meta });
  await prompt(client, sessionId, "hello");
  const asked = await prompt(client, sessionId, "go");
  assert.equal(asked.stopReason, "end_turn");
  const { kind, calls } = asked._meta["harness-engine/interrupt"];
  assert.deepEqual([kind, calls.length, calls[0].name], ["tool_approval", 1, "delete"]);
  const announced = client.updates.find((update) => update.sessionUpdate === "tool_call");
  assert.deepEqual([announced.toolCallId, announced.status], [calls[0].toolCallId, "pending"]);
  client.process.kill("SIGKILL");
  await client.closed;

  // What the state folder holds is all that another host gets.
  const state = path.join(folder, "elsewhere");
  await fs.mkdir(state);
  for (const name of STATE) await fs.cp(path.join(folder, "state", name), path.join(state, name), { recursive: true, force: true }).catch(ignoreMissing);
  await fs.rm(path.join(folder, "state"), { recursive: true });
  const second = new AcpClient(t, { HARNESS_STATE: state, MODEL_URL: model.url });
  await second.call("initialize", { protocolVersion: 1, clientCapabilities: {} });
  await second.call("session/resume", { sessionId, cwd, mcpServers: [], _meta: meta });
  const resume = (decision) => second.call("session/prompt", { sessionId, prompt: [], _meta: { "harness-engine/resume": { decision } } });
  await assert.rejects(resume({ calls: [] }), ({ rpc }) => rpc.code === -32602 && rpc.data.field === "decision.calls");
  const decision = { calls: [{ toolCallId: calls[0].toolCallId, verdict: "approve" }] };
  assert.equal((await resume(decision)).stopReason, "end_turn");
  await assert.rejects(fs.access(path.join(cwd, "old.txt")));
  await assert.rejects(resume(decision), ({ rpc }) => {
    assert.deepEqual(rpc.data, { category: "unavailable", code: "interrupt_lost", retryable: false });
    return true;
  });
  second.updates.length = 0;
  await prompt(second, sessionId, "last");
  assert.equal(textOf(second.updates), "4 questions", "hello, go, the result of the call, last");
});

test("images in a prompt reach the model, up to the limit of a message", async (t) => {
  const { cwd, client, model } = await setup(t, () => ({ text: ["hi"] }));
  assert.deepEqual(client.initialized.agentCapabilities.promptCapabilities, { image: true, audio: false, embeddedContext: true });
  const { sessionId } = await client.call("session/new", { cwd, mcpServers: [], _meta: meta });
  const data = Buffer.alloc(MAX_FILES_BYTES, 1).toString("base64");
  await client.call("session/prompt", { sessionId, prompt: [{ type: "text", text: "look" }, { type: "image", data, mimeType: "image/png", uri: "attachment:///a.png" }] });
  const [image] = model.requests[0].body.messages.at(-1).content.filter(({ type }) => type === "image");
  assert.equal(image.source.data, data);
});

test("a session that never had a turn can be resumed; an unknown one cannot", async (t) => {
  const { cwd, client, start } = await setup(t, () => ({ text: ["hi"] }));
  const { sessionId } = await client.call("session/new", { cwd, mcpServers: [], _meta: meta });
  client.process.kill("SIGKILL");
  await client.closed;
  const second = await start();
  await second.call("session/resume", { sessionId, cwd, mcpServers: [], _meta: meta });
  for (const unknown of ["00000000-0000-4000-8000-000000000000", "../../etc/passwd", "", "x".repeat(10_000)]) {
    await assert.rejects(second.call("session/resume", { sessionId: unknown, cwd, mcpServers: [], _meta: meta }), (error) => {
      assert.equal(error.rpc.code, -32002);
      assert.equal(error.rpc.data.code, "session_not_found");
      return true;
    });
  }
});

test("cancel ends a turn with its stop reason, also through $/cancel_request", async (t) => {
  const { cwd, client, prompt } = await setup(t, () => ({ text: ["tick"], hang: true }));
  const { sessionId } = await client.call("session/new", { cwd, mcpServers: [], _meta: meta });
  const ways = [() => client.notify("session/cancel", { sessionId }), (requestId) => client.notify("$/cancel_request", { requestId })];
  for (const cancel of ways) {
    client.updates.length = 0;
    const turn = prompt(client, sessionId, "slow");
    const requestId = client.lastId;
    await client.update((update) => update.content?.text === "tick");
    cancel(requestId);
    assert.equal((await turn).stopReason, "cancelled");
  }
  client.notify("session/cancel", { sessionId: "none" });
});

test("bad input is refused by name and leaves the process usable", async (t) => {
  const { cwd, client, prompt, model } = await setup(t, () => ({ text: ["hi"] }));
  const open = (change) => client.call("session/new", { cwd, mcpServers: [], _meta: meta, ...change });
  const broken = (change) => ({ _meta: { "harness-engine": { construction: { ...construction, ...change } } } });
  const { sessionId } = await open({});
  const cases = [
    [() => open({ cwd: "relative" }), /cwd/],
    [() => open(broken({ options: { temperature: 9 } })), /construction\.options\.temperature/],
    [() => open(broken({ model: { provider: "x", id: "y" } })), /construction\.model\.provider/],
    [() => open(broken({ approval: "sometimes" })), /construction\.approval/],
    [() => client.call("session/prompt", { sessionId, prompt: [{ type: "image", data: "", mimeType: "image/png" }] }), /prompt\[0\]/],
    [() => client.call("session/prompt", { sessionId, prompt: [{ type: "audio", data: "AAAA", mimeType: "audio/wav" }] }), /prompt\[0\]/],
    [() => prompt(client, sessionId, "  "), /prompt/],
    [() => prompt(client, sessionId, "x".repeat((1 << 20) + 1)), /prompt/],
    [() => client.call("session/prompt", { sessionId }), /.*/],
    [() => client.call("no/such_method", {}), /.*/],
  ];
  for (const [call, message] of cases) await assert.rejects(call(), (error) => error.rpc.code < -32000 && message.test(error.message));
  client.write("this is not JSON\n[]\n42\n");
  assert.equal((await prompt(client, sessionId, "hello")).stopReason, "end_turn");
  assert.equal(model.requests.length, 1);
});

test("a failed turn carries its class and nothing of the endpoint's words", async (t) => {
  const { cwd, client, prompt } = await setup(t, () => ({ status: 400 }));
  const { sessionId } = await client.call("session/new", { cwd, mcpServers: [], _meta: meta });
  await assert.rejects(prompt(client, sessionId, "hello"), ({ rpc }) => {
    assert.equal(rpc.code, -32603);
    assert.deepEqual(rpc.data, { category: "configuration", code: "model_request_refused", retryable: false, status: 400 });
    assert.doesNotMatch(JSON.stringify(rpc), /upstream|secret|node_modules/);
    return true;
  });
});

test("a line over the limit ends the process, and no update is over it", async (t) => {
  const { client } = await setup(t, () => ({ text: ["hi"] }));
  client.write("x".repeat(MAX_LINE_BYTES + 10));
  assert.notEqual((await client.closed).signal, "SIGKILL");
});

test("without its environment the agent says what is missing", async (t) => {
  const client = new AcpClient(t, { MODEL_URL: "http://127.0.0.1:9" });
  assert.equal((await client.closed).code, 64);
  assert.match(client.stderr, /HARNESS_STATE/);
});
