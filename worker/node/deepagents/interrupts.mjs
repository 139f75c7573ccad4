// What a graph at rest waits for, how it is put to the person, and how the decision is handed back.
import { MAX_INPUT_BYTES, MAX_REASON_BYTES, MAX_SHOWN_ARGUMENTS_BYTES, MAX_SHOWN_CALLS, MAX_SHOWN_CALLS_BYTES, byteLength, cut } from "./bounds.mjs";
import { TOOL_APPROVAL, VERDICTS } from "./approval.mjs";
import { InvalidConstructionError, object } from "./construction.mjs";
import { wrongAnswer } from "./input.mjs";

/** Nothing waits for the decision. */
export class InterruptLostError extends Error {
  constructor() {
    super("nothing waits for this decision");
    this.name = "InterruptLostError";
  }
}

/**
 * @typedef {{id: string, value: object}} Interrupt one call that stopped, also inside of a delegated agent
 */

/**
 * Those of the interrupts that are put to the person together: the calls that wait for approval, else the first form.
 * What is left over is asked when the turn goes on. It depends on the order of the interrupts alone, so that the
 * decision is matched with what was asked, whichever process does it.
 * @param {Interrupt[]} pending
 */
function asked(pending) {
  const approvals = pending.filter(({ value }) => value.kind === TOOL_APPROVAL).slice(0, MAX_SHOWN_CALLS);
  return approvals.length > 0 ? approvals : pending.slice(0, 1);
}

/** What the person is asked, as the driver gets it. @param {Interrupt[]} pending at least one */
export function question(pending) {
  const chosen = asked(pending);
  const [{ value }] = chosen;
  if (value.kind !== TOOL_APPROVAL) return { kind: value.kind, prompt: value.prompt, fields: value.fields, reason: "input_required" };
  let left = MAX_SHOWN_CALLS_BYTES;
  // An interrupt is one event, whose size is bounded. The arguments were shown when the call was announced.
  const shown = (value, max) => {
    const size = value === undefined ? Infinity : byteLength(JSON.stringify(value));
    if (size > Math.min(max, left)) return undefined;
    left -= size;
    return value;
  };
  const calls = chosen.map(({ value: { toolCallId, name } }) => ({ toolCallId, name, allowed: VERDICTS }));
  // Arguments before schemas: they say what is to happen.
  for (const [i, call] of calls.entries()) call.arguments = shown(chosen[i].value.arguments, MAX_SHOWN_ARGUMENTS_BYTES);
  for (const [i, call] of calls.entries()) call.schema = shown(chosen[i].value.schema, Infinity);
  return { kind: TOOL_APPROVAL, calls, reason: "approval_required" };
}

/**
 * Matches a decision with what was asked.
 * @param {Interrupt[]} pending
 * @returns {Record<string, object>} the answers by interrupt, for LangGraph's resume
 * @throws InterruptLostError, InvalidConstructionError
 */
export function answers(pending, decision) {
  if (pending.length === 0) throw new InterruptLostError();
  const { form, calls } = object("decision", decision, ["form", "calls"]);
  const chosen = asked(pending);
  const [{ id, value }] = chosen;
  if (value.kind === TOOL_APPROVAL) {
    if (form != null) throw new InvalidConstructionError("decision.form", "the agent asks for approval and not for input");
    return verdicts(chosen, calls);
  }
  if (calls != null) throw new InvalidConstructionError("decision.calls", "the agent asks for input and not for approval");
  object("decision.form", form, undefined);
  const wrong = wrongAnswer(value.fields, form);
  if (wrong) throw new InvalidConstructionError(`decision.form.${cut(wrong[0], 64).text}`, wrong[1]);
  return { [id]: { form } };
}

function verdicts(chosen, calls) {
  if (!Array.isArray(calls)) throw new InvalidConstructionError("decision.calls", "must be a list");
  const waiting = new Map(chosen.map(({ id, value }) => [value.toolCallId, id]));
  const found = {};
  for (const [i, call] of calls.entries()) {
    const field = `decision.calls[${i}]`;
    const { toolCallId, verdict, arguments: args, message } = object(field, call, ["toolCallId", "verdict", "arguments", "message"]);
    const id = waiting.get(toolCallId);
    if (id === undefined || id in found) throw new InvalidConstructionError(`${field}.toolCallId`, "does not wait for a verdict, or has one already");
    if (!VERDICTS.includes(verdict)) throw new InvalidConstructionError(`${field}.verdict`, `must be one of ${VERDICTS.join(", ")}`);
    found[id] = { verdict };
    if (verdict === "edit") {
      object(`${field}.arguments`, args, undefined);
      if (byteLength(JSON.stringify(args)) > MAX_INPUT_BYTES) throw new InvalidConstructionError(`${field}.arguments`, `must be at most ${MAX_INPUT_BYTES} bytes long`);
      found[id].arguments = args;
    }
    if (verdict === "reject" && message != null) {
      if (typeof message !== "string") throw new InvalidConstructionError(`${field}.message`, "must be a string");
      found[id].message = cut(message, MAX_REASON_BYTES).text;
    }
  }
  if (Object.keys(found).length < chosen.length) throw new InvalidConstructionError("decision.calls", "must have a verdict on every call that waits");
  return found;
}
