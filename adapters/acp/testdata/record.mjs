// Records what the Node agent of Deep Agents says on standard output, for replay by the driver's tests:
//
//   node adapters/acp/testdata/record.mjs      (after `npm ci` in worker/node)
//
// Each file holds one conversation, a line per message: {"from": "driver" | "agent", "message": ...}. The model is a
// scripted endpoint; paths and addresses of this machine are replaced.
import fs from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { AcpClient } from "../../../worker/node/testing/acp-client.mjs";
import { ModelEndpoint, endsWithToolResult, lastUserText, toolResults } from "../../../worker/node/testing/model-endpoint.mjs";

const here = path.dirname(new URL(import.meta.url).pathname);

const task = (description) => ({ name: "task", args: { description, subagent_type: "general-purpose" } });

/** Answers by the user's text. */
const REPLIES = {
  text: { text: ["Hello ", "there."] },
  think: { thinking: ["Let me ", "see."], text: ["Done."] },
  write: { text: ["Writing."], tools: [{ name: "write_file", args: { file_path: "/notes.md", content: "kept words\n" } }] },
  missing: { tools: [{ name: "read_file", args: { file_path: "/none.md" } }] },
  two: {
    tools: [
      { name: "ls", args: { path: "/" } },
      { name: "no_such_tool", args: {} },
    ],
  },
  plan: { tools: [{ name: "write_todos", args: { todos: [{ content: "look", status: "completed" }, { content: "leap", status: "in_progress" }] } }] },
  delegate: { text: ["Delegating."], tools: [task("child text"), task("child write")] },
  "child text": { thinking: ["Hm."], text: ["From the child."] },
  "child write": { tools: [{ name: "write_file", args: { file_path: "/child.md", content: "x" } }] },
  long: { text: ["Cut "], stop: "max_tokens" },
  refuse: { text: ["No."], stop: "refusal" },
  broken: { text: ["Half "], cut: "clean" },
  throttled: { status: 429, headers: { "retry-after": "7" } },
  bad: { status: 400 },
  slow: { text: ["tick "], hang: true },
  "three files": {
    text: ["Writing."],
    tools: ["a", "b", "c"].map((name) => ({ name: "write_file", args: { file_path: `/${name}`, content: name } })),
  },
  ask: { tools: [{ name: "request_input", args: { prompt: "Which one?", fields: [{ name: "colour", kind: "choice", choices: ["red", "blue"], required: true }] } }] },
};

/** Decisions on what the agent asked; a step of a conversation may be one. */
const verdicts = ({ calls }) => {
  const [approved, edited, rejected] = calls.map(({ toolCallId }) => toolCallId);
  return {
    calls: [
      { toolCallId: approved, verdict: "approve" },
      { toolCallId: edited, verdict: "edit", arguments: { file_path: "/other", content: "changed" } },
      { toolCallId: rejected, verdict: "reject", message: "not that one" },
    ],
  };
};
const approveAll = ({ calls }) => ({ calls: calls.map(({ toolCallId }) => ({ toolCallId, verdict: "approve" })) });
const blue = () => ({ form: { colour: "blue" } });

/** The conversations: texts of the user, and decisions; `slow` is cancelled in the middle. */
const CONVERSATIONS = {
  messages: ["text", "think", "long", "refuse"],
  tools: ["write", "missing", "two"],
  plan: ["plan"],
  delegation: ["delegate"],
  failures: ["broken", "throttled", "bad", "text"],
  cancel: ["slow", "text"],
  approval: ["three files", verdicts, "delegate", approveAll, "three files", "text"],
  form: ["ask", blue],
};

const script = (request) =>
  endsWithToolResult(request.body) ? { text: ["Saw: ", toolResults(request.body).at(-1).slice(0, 60)] } : REPLIES[lastUserText(request.body)];

async function record(name, texts) {
  const folder = await fs.mkdtemp(path.join(os.tmpdir(), "record-"));
  const cwd = path.join(folder, "workspace");
  await fs.mkdir(cwd);
  const model = await new ModelEndpoint(script).listen();
  const ended = [];
  const client = new AcpClient({ after: (work) => ended.push(work) }, { HARNESS_STATE: path.join(folder, "state"), MODEL_URL: model.url });
  const lines = [];
  const note = (from, message) => lines.push(JSON.stringify({ from, message }).replaceAll(folder, "/folder").replaceAll(model.url, "http://model"));
  client.onMessage = (message) => note("agent", message);
  client.onWrite = (message) => note("driver", message);

  await client.call("initialize", { protocolVersion: 1, clientCapabilities: { fs: { readTextFile: false, writeTextFile: false } } });
  const approval = name === "approval" ? "ALWAYS" : "NEVER";
  const construction = { systemPrompt: "be brief", model: { provider: "anthropic", id: "fake-model" }, approval, options: {} };
  const { sessionId } = await client.call("session/new", { cwd, mcpServers: [], _meta: { "harness-engine": { construction } } });
  let asked;
  for (const text of texts) {
    const prompt =
      typeof text === "function"
        ? { sessionId, prompt: [], _meta: { "harness-engine/resume": { decision: text(asked) } } }
        : { sessionId, prompt: [{ type: "text", text }] };
    const turn = client.call("session/prompt", prompt).then(
      (result) => (asked = result._meta?.["harness-engine/interrupt"]),
      () => {},
    );
    if (text === "slow") {
      await client.update((update) => update.content?.text === "tick ");
      client.notify("session/cancel", { sessionId });
    }
    await turn;
  }
  client.process.stdin.end();
  await client.closed;
  for (const work of ended) await work();
  await model.close();
  await fs.rm(folder, { recursive: true });
  await fs.writeFile(path.join(here, `${name}.ndjson`), `${lines.join("\n")}\n`);
}

for (const [name, texts] of Object.entries(CONVERSATIONS)) await record(name, texts);
