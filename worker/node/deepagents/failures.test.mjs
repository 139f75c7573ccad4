import assert from "node:assert/strict";
import net from "node:net";
import { once } from "node:events";
import { test } from "node:test";
import { classify } from "./failures.mjs";
import { CorruptFileError, TooLargeError } from "./durable.mjs";
import { lastUserText } from "../testing/model-endpoint.mjs";
import { PROVIDERS, conversation, ofKind, textOf } from "../testing/turns.mjs";

const STATUSES = [
  [400, "configuration", "model_request_refused", false],
  [401, "authentication", "model_authentication_failed", false],
  [402, "configuration", "model_billing", false],
  [403, "authorization", "model_access_denied", false],
  [404, "configuration", "model_not_found", false],
  [408, "timeout", "model_timeout", true],
  [409, "configuration", "model_request_refused", false],
  [413, "configuration", "model_request_too_large", false],
  [422, "configuration", "model_request_refused", false],
  [429, "throttled", "model_throttled", true],
  [500, "unavailable", "model_unavailable", true],
  [502, "unavailable", "model_unavailable", true],
  [503, "unavailable", "model_unavailable", true],
  [504, "timeout", "model_timeout", true],
  [529, "unavailable", "model_unavailable", true],
];

const IN_STREAM = [
  ["overloaded_error", "unavailable"],
  ["api_error", "unavailable"],
  ["rate_limit_error", "throttled"],
  ["invalid_request_error", "configuration"],
  ["authentication_error", "authentication"],
];

/** Nothing of the endpoint's own words, no path and no stack may be shown. */
function assertSafe({ message, code }) {
  assert.doesNotMatch(message, /secret|upstream said|\/srv|node_modules|at \w+ \(|\d{3}/);
  assert.match(code, /^[a-z_]+$/);
}

for (const provider of PROVIDERS) {
  test(`${provider}: HTTP statuses`, async (t) => {
    const c = await conversation(t, { provider, script: (request) => ({ status: Number(lastUserText(request.body)) }) });
    for (const [status, category, code, retryable] of STATUSES) {
      const { error } = await c.prompt(String(status));
      const found = classify(error);
      assert.deepEqual({ ...found, message: undefined }, { category, code, message: undefined, retryable, status }, `status ${status}`);
      assertSafe(found);
    }
  });

  test(`${provider}: Retry-After is kept, in seconds or as a date, within an hour`, async (t) => {
    const inHalfAnHour = new Date(Date.now() + 1_800_000).toUTCString(); // however long the machine takes until it is read
    const cases = [
      ["7", (ms) => ms === 7_000],
      ["999999", (ms) => ms === 3_600_000],
      [inHalfAnHour, (ms) => ms > 600_000 && ms <= 1_800_000],
      ["soon", (ms) => ms === undefined],
    ];
    for (const [header, fits] of cases) {
      const c = await conversation(t, { provider, script: () => ({ status: 429, headers: { "retry-after": header } }) });
      const { retryAfterMs } = classify((await c.prompt("go")).error);
      assert.ok(fits(retryAfterMs), `${header}: ${retryAfterMs}`);
    }
  });

  test(`${provider}: errors inside a stream`, async (t) => {
    const c = await conversation(t, { provider, script: (request) => ({ text: ["half "], errorEvent: lastUserText(request.body) }) });
    for (const [type, category] of IN_STREAM) {
      const { error, updates } = await c.prompt(type);
      const found = classify(error);
      assert.equal(found.category, category, type);
      assertSafe(found);
      assert.equal(textOf(updates), "half ");
    }
  });

  for (const cut of ["socket", "clean"]) {
    test(`${provider}: an answer that breaks off (${cut}) is asked for again, at last an error, and what it asked for is not done`, async (t) => {
      const script = (request) =>
        lastUserText(request.body) === "go" ? { text: ["half "], tools: [{ name: "write_file", args: { file_path: "/a", content: "x" } }], cut } : { text: ["whole"] };
      const c = await conversation(t, { provider, script });
      const { error, updates } = await c.prompt("go");
      const found = classify(error);
      assert.equal(found.category, "unavailable");
      assert.equal(found.code, "model_stream_cut");
      assert.equal(c.model.requests.length, 3);
      assert.equal(textOf(updates), "half half half ");
      assert.equal(ofKind(updates, "notice").length, 2);
      assert.equal(updates.some((update) => update.sessionUpdate === "tool_call"), false);
      assert.equal(textOf((await c.prompt("again")).updates), "whole", "the conversation goes on");
      assert.equal(c.model.requests.length, 4);
    });
  }

  test(`${provider}: nobody listens`, async (t) => {
    const c = await conversation(t, { provider, script: () => ({ text: ["never"] }) });
    const server = net.createServer().listen(0, "127.0.0.1");
    await once(server, "listening");
    const { port } = server.address();
    server.close();
    await once(server, "close");
    const { Sessions } = await import("./sessions.mjs");
    const sessions = new Sessions({ state: c.state, modelUrl: `http://127.0.0.1:${port}` });
    await sessions.resume(c.id, c.workspace, c.construction);
    await assert.rejects(sessions.prompt(c.id, { message: { text: "go", images: [], documents: [] } }, { send: async () => {}, signal: new AbortController().signal }), (error) => classify(error).category === "unavailable");
  });

  test(`${provider}: no answer in time`, async (t) => {
    const never = Promise.withResolvers?.() ?? {};
    const c = await conversation(t, { provider, options: { requestTimeoutSeconds: 1 }, script: () => never.promise ?? new Promise(() => {}) });
    const { error } = await c.prompt("go");
    assert.equal(classify(error).category, "timeout");
    assert.equal(c.model.requests.length, 1);
  });

  test(`${provider}: a delegated agent's model fails the turn with its own class`, async (t) => {
    const script = (request) =>
      lastUserText(request.body) === "go" ? { tools: [{ name: "task", args: { description: "sub", subagent_type: "general-purpose" } }] } : { status: 429 };
    const c = await conversation(t, { provider, script });
    assert.equal(classify((await c.prompt("go")).error).category, "throttled");
  });
}

test("storage", () => {
  const wrapped = (cause) => new Error("outer /srv/secret", { cause });
  const cases = [
    [new CorruptFileError("x"), "thread_damaged", false],
    [new TooLargeError(2, 1), "thread_too_large", false],
    [Object.assign(new Error("no space"), { code: "ENOSPC" }), "thread_not_stored", true],
  ];
  for (const [cause, code, retryable] of cases) {
    const found = classify(wrapped(cause));
    assert.equal(found.category, "persistence");
    assert.equal(found.code, code);
    assert.equal(found.retryable, retryable);
    assertSafe(found);
  }
});

test("everything else is internal and says nothing", () => {
  const loop = new Error("secret");
  loop.cause = loop;
  for (const error of [loop, "secret", null, undefined, { message: "secret" }, new TypeError("secret")]) {
    const found = classify(error);
    assert.equal(found.category, "internal");
    assertSafe(found);
  }
});
