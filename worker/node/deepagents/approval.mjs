// Which calls wait for a person, and what the person is shown of them.
import { interrupt } from "@langchain/langgraph";
import { toJsonSchema } from "@langchain/core/utils/json_schema";
import { MAX_SCHEMA_BYTES, byteLength } from "./bounds.mjs";
import { idsOf } from "./calls.mjs";
import { REQUEST_INPUT } from "./input.mjs";

/** What a person may do with a call. */
export const VERDICTS = ["approve", "edit", "reject"];

/** Kind of interrupt that asks for the approval of calls. */
export const TOOL_APPROVAL = "tool_approval";

/** Tools that destroy. */
const SENSITIVE = new Set(["delete"]);

/**
 * Tools that change nothing but the conversation. A delegated agent asks for its own calls. Every other tool has
 * effects, also one that a later version of the library may bring.
 */
export const WITHOUT_EFFECTS = new Set(["ls", "read_file", "glob", "grep", "write_todos", "task", REQUEST_INPUT]);

/** By policy: whether a call of the tool waits. It depends on nothing else, for it is asked again when a turn goes on. */
const WAITS = {
  NEVER: () => false,
  SENSITIVE_ONLY: (name) => SENSITIVE.has(name),
  ALWAYS: (name) => !WITHOUT_EFFECTS.has(name),
};

/**
 * Asks a person, where the policy wants it. The first time the graph stops here; when the turn goes on, the call comes
 * here again and gets the answer.
 * @returns {{verdict: string, arguments?: object, message?: string} | undefined} undefined where nobody needs to be asked
 */
export function askApproval(policy, { toolCall, tool }) {
  // A tool that does not exist does nothing.
  if (!tool || !WAITS[policy](toolCall.name)) return undefined;
  return interrupt({ kind: TOOL_APPROVAL, ...idsOf(toolCall.id), name: toolCall.name, arguments: toolCall.args ?? {}, schema: schemaOf(tool) });
}

/** The JSON Schema of a tool's arguments; undefined where there is none that is small enough to be shown. */
function schemaOf({ schema }) {
  try {
    const shown = toJsonSchema(schema);
    return byteLength(JSON.stringify(shown)) <= MAX_SCHEMA_BYTES ? shown : undefined;
  } catch {
    return undefined; // it cannot be expressed as JSON Schema
  }
}
