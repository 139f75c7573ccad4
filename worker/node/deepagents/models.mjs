// The chat models, as LangChain makes them, with three differences: a call is never repeated silently, an answer that
// breaks off is an error, and the stop reason stays with the message.
import { ChatAnthropic } from "@langchain/anthropic";
import { BaseChatModel } from "@langchain/core/language_models/chat_models";
import { ChatOpenAI } from "@langchain/openai";
import { IncompleteAnswerError, markModelFailure } from "./failures.mjs";

/** Key in a message's response_metadata that holds the stop reason as one of ACP's. */
export const STOP_REASON = "harness_stop_reason";

/** The provider's stop reasons in ACP's terms; all others end the turn in the ordinary way. */
const STOP_REASONS = new Map([
  ["max_tokens", "max_tokens"],
  ["model_context_window_exceeded", "max_tokens"],
  ["length", "max_tokens"],
  ["refusal", "refusal"],
  ["content_filter", "refusal"],
]);

/**
 * Adds the three differences to a chat model class. A provider's stream that is closed in order but too early looks
 * complete to LangChain: the half answer would be kept as if it were whole, and a half tool call could run.
 * @param nativeStop reads the provider's stop reason from a generation chunk
 */
const careful = (Base, nativeStop) =>
  class extends Base {
    // deepagents recognises models by this name.
    static lc_name() {
      return Base.lc_name();
    }

    async *_streamResponseChunks(messages, options, runManager) {
      let ended = false;
      try {
        for await (const chunk of super._streamResponseChunks(messages, options, runManager)) {
          const stop = nativeStop(chunk);
          if (stop != null) {
            ended = true;
            chunk.message.response_metadata = { ...chunk.message.response_metadata, [STOP_REASON]: STOP_REASONS.get(stop) ?? "end_turn" };
          }
          yield chunk;
        }
        if (!ended) throw new IncompleteAnswerError();
      } catch (error) {
        throw markModelFailure(error);
      }
    }

    // Providers have a second way to stream; it goes through the first one here, so that both are careful.
    _streamChatModelEvents(messages, options, runManager) {
      return BaseChatModel.prototype._streamChatModelEvents.call(this, messages, options, runManager);
    }

    async _generate(messages, options, runManager) {
      try {
        return await super._generate(messages, options, runManager);
      } catch (error) {
        throw markModelFailure(error);
      }
    }
  };

class CarefulAnthropic extends careful(ChatAnthropic, (chunk) => chunk.message.additional_kwargs?.stop_reason) {}

class CarefulOpenAI extends careful(ChatOpenAI, (chunk) => chunk.generationInfo?.finish_reason) {
  // The model proxy serves Chat Completions only, whatever API LangChain prefers for a model.
  _useResponsesApi() {
    return false;
  }

  // Binding tools makes a new model, which the base class would make of itself.
  withConfig(config) {
    const model = new CarefulOpenAI(this.fields);
    model.defaultOptions = { ...this.defaultOptions, ...config };
    return model;
  }
}

/** The proxy adds the real key; the SDKs insist on some. */
const NO_KEY = "none";

const PROVIDERS = {
  anthropic: ({ id, options, baseUrl, tags }) =>
    new CarefulAnthropic({
      model: id,
      tags,
      apiKey: NO_KEY,
      anthropicApiUrl: `${baseUrl}/anthropic`,
      maxRetries: 0,
      clientOptions: { maxRetries: 0, timeout: options.requestTimeoutSeconds * 1000 },
      ...(options.temperature !== undefined && { temperature: options.temperature }),
      ...(options.maxTokens !== undefined && { maxTokens: options.maxTokens }),
      ...(options.thinkingBudgetTokens !== undefined && { thinking: { type: "enabled", budget_tokens: options.thinkingBudgetTokens } }),
    }),
  openai: ({ id, options, baseUrl, tags }) =>
    new CarefulOpenAI({
      model: id,
      tags,
      apiKey: NO_KEY,
      configuration: { baseURL: `${baseUrl}/openai/v1` },
      maxRetries: 0,
      timeout: options.requestTimeoutSeconds * 1000,
      ...(options.temperature !== undefined && { temperature: options.temperature }),
      ...(options.maxTokens !== undefined && { maxTokens: options.maxTokens }),
    }),
};

/**
 * Makes the chat model of a construction.
 * @param {{provider: string, id: string}} model
 * @param {object} options checked options
 * @param {string} baseUrl of the model proxy, without a trailing slash
 * @param {string[]} [tags] LangChain's tags of every call
 */
export function makeModel({ provider, id }, options, baseUrl, tags = []) {
  return PROVIDERS[provider]({ id, options, baseUrl, tags });
}
