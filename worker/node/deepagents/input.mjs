// The tool with which the agent asks the person for values.
import { interrupt } from "@langchain/langgraph";
import { tool } from "langchain";
import { MAX_ANSWER_BYTES, byteLength } from "./bounds.mjs";
import { currentCall } from "./calls.mjs";

/** Name of the tool. */
export const REQUEST_INPUT = "request_input";

/** Kind of interrupt that asks for values. */
const FORM_INPUT = "form_input";

const FIELD_KINDS = ["string", "number", "boolean", "choice"];

// The bounds are those of the engine's events.
const SCHEMA = {
  type: "object",
  additionalProperties: false,
  required: ["prompt"],
  properties: {
    prompt: { type: "string", minLength: 1, maxLength: 4000, description: "The question, as the person reads it." },
    fields: {
      type: "array",
      maxItems: 64,
      description: "The values to ask for. Leave it out to ask for one text, which is returned as `answer`.",
      items: {
        type: "object",
        additionalProperties: false,
        required: ["name", "kind"],
        properties: {
          name: { type: "string", pattern: "^[A-Za-z_][A-Za-z0-9_-]{0,63}$", description: "Name of the value in the result." },
          label: { type: "string", maxLength: 250, description: "What the person reads beside it." },
          kind: { type: "string", enum: FIELD_KINDS },
          required: { type: "boolean" },
          choices: { type: "array", minItems: 1, maxItems: 64, items: { type: "string", minLength: 1, maxLength: 250 }, description: "For kind choice: what can be chosen." },
        },
      },
    },
  },
};

/** What is asked when no field is named. */
const ONE_TEXT = [{ name: "answer", kind: "string", required: true }];

/** The tool. The graph stops in it until the person has answered. */
export function requestInput() {
  return tool(
    ({ prompt, fields }) => {
      const asked = fields?.length ? fields : ONE_TEXT;
      checkFields(asked);
      const { form } = interrupt({ kind: FORM_INPUT, ...currentCall(), prompt, fields: asked });
      return JSON.stringify(form);
    },
    {
      name: REQUEST_INPUT,
      description:
        "Ask the person you work for to fill in a form, and wait for the answer. Use it when you cannot go on without " +
        "a decision or a value that only the person has. The result is a JSON object with the values by name.",
      schema: SCHEMA,
    },
  );
}

function checkFields(fields) {
  const names = new Set();
  for (const { name, kind, choices } of fields) {
    if (names.has(name)) throw new Error(`two fields have the name ${name}`);
    names.add(name);
    if ((kind === "choice") !== (choices !== undefined)) throw new Error(`field ${name}: choices belong to kind choice`);
    if (choices?.some((choice) => /[\u0000-\u001f\u007f-\u009f]/.test(choice))) throw new Error(`field ${name}: a choice has control characters`);
  }
}

const FITS = {
  string: (value) => typeof value === "string" && byteLength(value) <= MAX_ANSWER_BYTES,
  number: (value) => Number.isFinite(value),
  boolean: (value) => typeof value === "boolean",
  choice: (value, { choices }) => choices.includes(value),
};

/**
 * Looks for what is wrong with an answer.
 * @returns {[string, string] | undefined} the name of the field and what is wrong with it
 */
export function wrongAnswer(fields, form) {
  const known = new Map(fields.map((field) => [field.name, field]));
  for (const name of Object.keys(form)) if (!known.has(name)) return [name, "is not asked for"];
  for (const field of fields) {
    const value = Object.hasOwn(form, field.name) ? form[field.name] : undefined;
    if (value === undefined || value === null) {
      if (field.required) return [field.name, "is required"];
    } else if (!FITS[field.kind](value, field)) return [field.name, `is no answer of kind ${field.kind}`];
  }
  return undefined;
}
