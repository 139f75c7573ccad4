// What an agent is made of, as the driver gives it with a session. Anything unknown is refused: a misspelt option must
// not be ignored.
import { MAX_SYSTEM_PROMPT_UNITS } from "./bounds.mjs";
import { DEFAULT_MODEL, DEFAULT_POLICY, OPTIONS, POLICIES, PROVIDER_NAMES } from "./options.mjs";

/** Key of everything of ours in a `_meta` object. */
export const META = "harness-engine";

/** Input of the driver that cannot be used; the message names the field. */
export class InvalidConstructionError extends Error {
  constructor(field, message) {
    super(`${field}: ${message}`);
    this.name = "InvalidConstructionError";
    this.field = field;
  }
}

/**
 * Checks a construction and fills in the defaults.
 * @returns {{systemPrompt: string, model: {provider: string, id: string}, approval: string, options: object}}
 */
export function parseConstruction(value) {
  const input = object("construction", value ?? {}, ["systemPrompt", "model", "approval", "options"]);
  const systemPrompt = text("construction.systemPrompt", input.systemPrompt ?? "", MAX_SYSTEM_PROMPT_UNITS);
  const model = parseModel(input.model);
  const approval = input.approval || DEFAULT_POLICY;
  if (!POLICIES.includes(approval)) throw new InvalidConstructionError("construction.approval", `must be one of ${POLICIES.join(", ")}`);
  const options = parseOptions(input.options ?? {});
  if (options.thinkingBudgetTokens !== undefined) checkThinking(model, options);
  return { systemPrompt, model, approval, options };
}

function parseModel(value) {
  const input = object("construction.model", value ?? {}, ["provider", "id"]);
  const provider = text("construction.model.provider", input.provider ?? "", 64);
  const id = text("construction.model.id", input.id ?? "", 200);
  if (provider === "" && id === "") return DEFAULT_MODEL;
  if (!PROVIDER_NAMES.includes(provider)) throw new InvalidConstructionError("construction.model.provider", `must be one of ${PROVIDER_NAMES.join(", ")}`);
  if (id === "") throw new InvalidConstructionError("construction.model.id", "must not be empty");
  return { provider, id };
}

function parseOptions(value) {
  const input = object("construction.options", value, Object.keys(OPTIONS));
  const options = {};
  for (const [name, rule] of Object.entries(OPTIONS)) {
    const given = input[name] ?? rule.default;
    if (given !== undefined) options[name] = checkOption(`construction.options.${name}`, rule, given);
  }
  return options;
}

function checkOption(field, rule, given) {
  const fits = { boolean: typeof given === "boolean", number: Number.isFinite(given), integer: Number.isSafeInteger(given) }[rule.type];
  if (!fits) throw new InvalidConstructionError(field, `must be of type ${rule.type}`);
  if (given < rule.min || given > rule.max) throw new InvalidConstructionError(field, `must be between ${rule.min} and ${rule.max}`);
  return given;
}

/** The rules of Anthropic's extended thinking, so that they are told here and not by a failing model call. */
function checkThinking({ provider }, { thinkingBudgetTokens, temperature, maxTokens }) {
  const field = "construction.options.thinkingBudgetTokens";
  if (provider !== "anthropic") throw new InvalidConstructionError(field, "works with provider anthropic only");
  if (temperature !== undefined && temperature !== 1) throw new InvalidConstructionError(field, "cannot be combined with a temperature");
  if (maxTokens === undefined || maxTokens <= thinkingBudgetTokens) throw new InvalidConstructionError(field, "needs a larger maxTokens");
}

/** Checks that a value is an object without fields other than the known ones; undefined allows any. */
export function object(field, value, known) {
  if (value === null || typeof value !== "object" || Array.isArray(value)) throw new InvalidConstructionError(field, "must be an object");
  const unknown = Object.keys(value).find((key) => known !== undefined && !known.includes(key));
  if (unknown !== undefined) throw new InvalidConstructionError(field, `has the unknown field ${JSON.stringify(unknown.slice(0, 64))}`);
  return value;
}

function text(field, value, max) {
  if (typeof value !== "string") throw new InvalidConstructionError(field, "must be a string");
  if (value.length > max) throw new InvalidConstructionError(field, `must be at most ${max} characters long`);
  return value;
}
