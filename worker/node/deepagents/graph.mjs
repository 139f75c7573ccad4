// Builds the Deep Agent of a construction.
import { createDeepAgent, createSummarizationMiddleware, GENERAL_PURPOSE_SUBAGENT } from "deepagents";
import { todoListMiddleware } from "langchain";
import { makeModel } from "./models.mjs";
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
 */
export function buildGraph({ construction, workspace, modelUrl, checkpointer }) {
  const { systemPrompt, model, options } = construction;
  const backend = new Workspace(workspace);
  const chatModel = makeModel(model, options, modelUrl);
  // A summary of the conversation is for the model alone; its tokens are not the agent's words.
  const quietModel = makeModel(model, options, modelUrl, [NO_STREAM]);
  const summaries = () => createSummarizationMiddleware({ backend, model: quietModel });
  const graph = createDeepAgent({
    model: chatModel,
    systemPrompt,
    backend,
    checkpointer,
    middleware: [...(options.todoList ? [todoListMiddleware()] : []), summaries(), toolGuard()],
    subagents: [{ ...GENERAL_PURPOSE_SUBAGENT, middleware: [summaries(), toolGuard()] }],
  });
  assertWholeCheckpoints(graph);
  return graph;
}

/**
 * The saver forgets old checkpoints, which is right only while each one holds the whole state. LangGraph's delta
 * channels would spread it over the chain of parents.
 */
function assertWholeCheckpoints(graph) {
  const delta = Object.entries(graph.graph.channels).find(([, channel]) => /Delta/.test(channel.constructor.name));
  if (delta) throw new Error(`channel ${delta[0]} keeps its state in deltas, which the checkpoint saver does not support`);
}
