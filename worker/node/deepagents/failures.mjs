// What went wrong in a turn, in terms that are safe to show: a category, a stable code and a sentence of ours. The
// provider's own text, paths and stacks stay here.
import { GraphRecursionError } from "@langchain/langgraph";
import { CorruptFileError, TooLargeError } from "./durable.mjs";

const MODEL = Symbol("failed in a model call");

/** The model's answer stopped before its end, though the connection was closed in order. */
export class IncompleteAnswerError extends Error {
  constructor() {
    super("the model's answer ended without a stop reason");
    this.name = "IncompleteAnswerError";
  }
}

/** Remembers that an error came from a model call. Returns the error itself, so that handlers further up still know it. */
export function markModelFailure(error) {
  if (error !== null && typeof error === "object") error[MODEL] = true;
  return error;
}

/** Whether an error, or what caused it, came from a model call. */
export function isModelFailure(error) {
  return causes(error).some((cause) => cause[MODEL] === true);
}

/** Whether the graph stopped at its limit of steps, which ends a turn without an error. */
export function isStepLimit(error) {
  return causes(error).some((cause) => cause instanceof GraphRecursionError || cause.lc_error_code === "GRAPH_RECURSION_LIMIT");
}

/**
 * @typedef {object} Failure
 * @property {string} category one of the engine's error categories
 * @property {string} code stable
 * @property {string} message safe to show
 * @property {boolean} retryable
 * @property {number} [status] HTTP status of the model endpoint
 * @property {number} [retryAfterMs]
 */

const BY_STATUS = new Map([
  [400, ["configuration", "model_request_refused", "The model endpoint refused the request as malformed or unsuitable for the model.", false]],
  [401, ["authentication", "model_authentication_failed", "The model endpoint did not accept the credential.", false]],
  [402, ["configuration", "model_billing", "The model endpoint asks for payment.", false]],
  [403, ["authorization", "model_access_denied", "The model endpoint does not allow this use of the model.", false]],
  [404, ["configuration", "model_not_found", "The model endpoint does not know the model.", false]],
  [408, ["timeout", "model_timeout", "The model endpoint did not answer in time.", true]],
  [413, ["configuration", "model_request_too_large", "The request is too large for the model endpoint.", false]],
  [422, ["configuration", "model_request_refused", "The model endpoint refused the request as malformed or unsuitable for the model.", false]],
  [429, ["throttled", "model_throttled", "The model endpoint asks to slow down.", true]],
  [504, ["timeout", "model_timeout", "The model endpoint did not answer in time.", true]],
]);

const CLIENT_ERROR = ["configuration", "model_request_refused", "The model endpoint refused the request.", false];
const SERVER_ERROR = ["unavailable", "model_unavailable", "The model endpoint failed.", true];
const CUT = ["unavailable", "model_stream_cut", "The connection to the model endpoint was lost before the answer was complete.", true];

/** Types of errors that providers put into a stream whose HTTP status was 200. */
const BY_TYPE = new Map([
  ["invalid_request_error", BY_STATUS.get(400)],
  ["authentication_error", BY_STATUS.get(401)],
  ["permission_error", BY_STATUS.get(403)],
  ["not_found_error", BY_STATUS.get(404)],
  ["request_too_large", BY_STATUS.get(413)],
  ["rate_limit_error", BY_STATUS.get(429)],
  ["rate_limit_exceeded", BY_STATUS.get(429)],
  ["timeout_error", BY_STATUS.get(504)],
  ["overloaded_error", SERVER_ERROR],
  ["api_error", SERVER_ERROR],
  ["server_error", SERVER_ERROR],
]);

const TIMEOUT_NAMES = /^(APIConnectionTimeoutError|TimeoutError)$/;
const CONNECTION_NAMES = /^(APIConnectionError|SocketError|IncompleteAnswerError)$/;
const CONNECTION_CODES = /^(ECONNREFUSED|ECONNRESET|EPIPE|ENOTFOUND|EHOSTUNREACH|ENETUNREACH|UND_ERR_\w+)$/;
const STORAGE_CODES = /^(ENOSPC|EDQUOT|EIO|EROFS|EMFILE|ENFILE)$/;

/** Classifies an error. @returns {Failure} */
export function classify(error) {
  const chain = causes(error);
  if (isModelFailure(error)) return classifyModel(chain);
  const storage = chain.find((cause) => cause instanceof CorruptFileError || cause instanceof TooLargeError || STORAGE_CODES.test(cause.code));
  if (storage instanceof CorruptFileError) return failure("persistence", "thread_damaged", "The stored conversation is damaged.", false);
  if (storage instanceof TooLargeError) return failure("persistence", "thread_too_large", "The conversation is too large to be stored.", false);
  if (storage) return failure("persistence", "thread_not_stored", "The conversation could not be stored.", true);
  return failure("internal", "harness_failed", "The harness failed.", false);
}

function classifyModel(chain) {
  const answered = chain.find((cause) => Number.isInteger(cause.status));
  if (answered) {
    const { status } = answered;
    const row = BY_STATUS.get(status) ?? (status >= 500 ? SERVER_ERROR : CLIENT_ERROR);
    const found = { ...failure(...row), status };
    const retryAfterMs = retryAfter(answered.headers);
    if (found.retryable && retryAfterMs !== undefined) found.retryAfterMs = retryAfterMs;
    return found;
  }
  // The Anthropic SDK keeps the whole event, the OpenAI SDK the inner error.
  const type = chain.map((cause) => cause.error?.error?.type ?? cause.error?.type ?? cause.type).find((value) => BY_TYPE.has(value));
  if (type) return failure(...BY_TYPE.get(type));
  const named = (pattern) => chain.some((cause) => pattern.test(cause.constructor?.name) || pattern.test(cause.name));
  if (named(TIMEOUT_NAMES)) return failure(...BY_STATUS.get(504));
  const connection = named(CONNECTION_NAMES) || chain.some((cause) => CONNECTION_CODES.test(cause.code) || (cause instanceof TypeError && cause.message === "terminated"));
  if (connection) return failure(...CUT);
  return failure("protocol", "model_answer_invalid", "The model endpoint gave an answer that cannot be understood.", false);
}

function failure(category, code, message, retryable) {
  return { category, code, message, retryable };
}

/** Seconds or a date (RFC 9110, 10.2.3), as milliseconds from now; at most an hour. */
function retryAfter(headers) {
  const value = headers?.get?.("retry-after");
  if (value == null || value === "") return undefined;
  const ms = /^\d{1,6}$/.test(value) ? Number(value) * 1000 : Date.parse(value) - Date.now();
  return Number.isFinite(ms) ? Math.min(Math.max(ms, 0), 3_600_000) : undefined;
}

/** An error and what caused it, outermost first. */
function causes(error) {
  const chain = [];
  for (let at = error; at !== null && typeof at === "object" && !chain.includes(at) && chain.length < 32; at = at.cause) chain.push(at);
  return chain;
}
