// Builds the Deep Agent of a construction.
import { createDeepAgent, createSummarizationMiddleware, GENERAL_PURPOSE_SUBAGENT } from "deepagents";
import { todoListMiddleware } from "langchain";
import { makeModel } from "./models.mjs";
import { requestInput } from "./input.mjs";
import { asking, modelRetry } from "./retry.mjs";
import { toolGuard } from "./tools.mjs";
import { Workspace } from "./workspace.mjs";

/** Keeps a model call out of the message stream. */
const NO_STREAM = "nostream";

/**
 * @param {object} parts
 * @param {ReturnType<import("./construction.mjs").parseConstruction>} parts.construction
 * @param {string} parts.workspace absolute path of the agent's files
 * @param {string} parts.modelUrl base URL of the model proxy
 * @param {import("@langchain/langgraph-checkpoint").BaseCheckpointSaver} parts.checkpointer
 * @param {import("./attachments.mjs").Attachments} parts.attachments
 * @param {import("./effects.mjs").Effects} parts.effects
 */
export function buildGraph({ construction, workspace, modelUrl, checkpointer, attachments, effects }) {
  const { systemPrompt, model, approval, options } = construction;
  const backend = new Workspace(workspace);
  const chatModel = makeModel(model, options, modelUrl);
  const summaries = () => quietSummaries(backend, makeModel(model, options, modelUrl, [NO_STREAM]));
  const graph = createDeepAgent({
    model: chatModel,
    systemPrompt,
    backend,
    checkpointer,
    tools: options.requestInput ? [requestInput()] : [],
    middleware: [...(options.todoList ? [todoListMiddleware()] : []), summaries(), toolGuard(approval, effects), attachments.middleware(), modelRetry()],
    subagents: [{ ...GENERAL_PURPOSE_SUBAGENT, middleware: [summaries(), toolGuard(approval, effects), modelRetry()] }],
  });
  assertWholeCheckpoints(graph);
  return graph;
}

/**
 * The library's summaries of long conversations, made by a model whose tokens are not streamed: a summary is for the
 * model alone and not the agent's words. The library makes them with the model of the request, so the quiet one stands
 * in for it while the summary is made. (It replaces the library's own middleware of the same name.)
 */
function quietSummaries(backend, quietModel) {
  const middleware = createSummarizationMiddleware({ backend });
  return {
    ...middleware,
    wrapModelCall: (request, handler) => {
      let summarised = false; // from then on it is the answer that is cut off
      const attempt = () =>
        middleware.wrapModelCall({ ...request, model: quietModel }, (short) => {
          summarised = true;
          return handler({ ...short, model: request.model });
        });
      return asking(attempt, request.runtime, () => !summarised);
    },
  };
}

/**
 * The saver forgets old checkpoints, which is right only while each one holds the whole state. LangGraph's delta
 * channels would spread it over the chain of parents.
 */
function assertWholeCheckpoints(graph) {
  const delta = Object.entries(graph.graph.channels).find(([, channel]) => /Delta/.test(channel.constructor.name));
  if (delta) throw new Error(`channel ${delta[0]} keeps its state in deltas, which the checkpoint saver does not support`);
}
