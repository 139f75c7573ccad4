// What an agent may choose. This module imports nothing: the adapter's test reads it to compare it with the JSON Schema
// that the catalog shows.

/** Providers of models. */
export const PROVIDER_NAMES = ["anthropic", "openai"];

/** The model of an agent that names none. */
export const DEFAULT_MODEL = { provider: "anthropic", id: "claude-sonnet-4-6" };

/** The policies of approval, as the engine names them, and that of an agent that names none. */
export const POLICIES = ["NEVER", "SENSITIVE_ONLY", "ALWAYS"];
export const DEFAULT_POLICY = "SENSITIVE_ONLY";

/** Options: type, bounds and default. */
export const OPTIONS = {
  temperature: { type: "number", min: 0, max: 2 },
  maxTokens: { type: "integer", min: 1, max: 200_000 },
  thinkingBudgetTokens: { type: "integer", min: 1024, max: 64_000 },
  recursionLimit: { type: "integer", min: 10, max: 2_000, default: 500 },
  requestTimeoutSeconds: { type: "integer", min: 1, max: 600, default: 300 },
  todoList: { type: "boolean", default: true },
  requestInput: { type: "boolean", default: true },
};
