import assert from "node:assert/strict";
import { test } from "node:test";
import { parseConstruction } from "./construction.mjs";
import { DEFAULT_MODEL, OPTIONS } from "./options.mjs";

test("nothing given: the defaults", () => {
  for (const value of [undefined, {}, { model: { provider: "", id: "" } }]) {
    const { systemPrompt, model, options } = parseConstruction(value);
    assert.equal(systemPrompt, "");
    assert.deepEqual(model, DEFAULT_MODEL);
    assert.deepEqual(options, { recursionLimit: 500, requestTimeoutSeconds: 300, todoList: true, requestInput: true });
  }
});

test("bad input is refused with the path of the field", () => {
  const model = { provider: "anthropic", id: "m" };
  const cases = [
    [[], "construction"],
    ["x", "construction"],
    [{ extra: 1 }, "construction"],
    [{ systemPrompt: 1 }, "construction.systemPrompt"],
    [{ systemPrompt: "x".repeat(800_001) }, "construction.systemPrompt"],
    [{ approval: 1 }, "construction.approval"],
    [{ approval: "never" }, "construction.approval"],
    [{ model: [] }, "construction.model"],
    [{ model: { provider: "acme", id: "m" } }, "construction.model.provider"],
    [{ model: { provider: "__proto__", id: "m" } }, "construction.model.provider"],
    [{ model: { provider: "constructor", id: "m" } }, "construction.model.provider"],
    [{ model: { provider: "openai", id: "" } }, "construction.model.id"],
    [{ model: { provider: "openai", id: "m", url: "http://x" } }, "construction.model"],
    [{ options: { temprature: 1 } }, "construction.options"],
    [{ options: { temperature: "1" } }, "construction.options.temperature"],
    [{ options: { temperature: NaN } }, "construction.options.temperature"],
    [{ options: { temperature: 2.5 } }, "construction.options.temperature"],
    [{ options: { maxTokens: 1.5 } }, "construction.options.maxTokens"],
    [{ options: { maxTokens: 0 } }, "construction.options.maxTokens"],
    [{ options: { recursionLimit: 1e9 } }, "construction.options.recursionLimit"],
    [{ options: { todoList: "yes" } }, "construction.options.todoList"],
    [{ model: { provider: "openai", id: "m" }, options: { thinkingBudgetTokens: 2048, maxTokens: 4096 } }, "construction.options.thinkingBudgetTokens"],
    [{ model, options: { thinkingBudgetTokens: 2048 } }, "construction.options.thinkingBudgetTokens"],
    [{ model, options: { thinkingBudgetTokens: 2048, maxTokens: 2048 } }, "construction.options.thinkingBudgetTokens"],
    [{ model, options: { thinkingBudgetTokens: 2048, maxTokens: 4096, temperature: 0.5 } }, "construction.options.thinkingBudgetTokens"],
  ];
  for (const [value, field] of cases) {
    assert.throws(() => parseConstruction(value), { name: "InvalidConstructionError", field }, JSON.stringify(value).slice(0, 100));
  }
});

test("every option's bounds are accepted and what lies beyond is not", () => {
  for (const [name, { type, min, max }] of Object.entries(OPTIONS)) {
    if (type === "boolean" || name === "thinkingBudgetTokens") continue;
    for (const value of [min, max]) assert.equal(parseConstruction({ options: { [name]: value } }).options[name], value);
    for (const value of [min - 1, max + 1]) assert.throws(() => parseConstruction({ options: { [name]: value } }));
  }
});
