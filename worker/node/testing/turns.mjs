// Sessions against a scripted model endpoint, in this process, for tests.
import fs from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { parseConstruction } from "../deepagents/construction.mjs";
import { Sessions } from "../deepagents/sessions.mjs";
import { ModelEndpoint } from "./model-endpoint.mjs";

export const PROVIDERS = ["anthropic", "openai"];

/** A fresh folder that the test's end removes. */
export async function scratch(t) {
  const folder = await fs.realpath(await fs.mkdtemp(path.join(os.tmpdir(), "deepagents-")));
  t.after(() => fs.rm(folder, { recursive: true, force: true }));
  return folder;
}

/** An endpoint that the test's end closes. */
export async function endpoint(t, script) {
  const model = await new ModelEndpoint(script).listen();
  t.after(() => model.close());
  return model;
}

/** One open session: `prompt(text)` runs a turn and gives {result, error, updates, usages}. */
export async function conversation(t, { provider = "anthropic", script, options, approval = "NEVER", systemPrompt = "be brief" }) {
  const folder = await scratch(t);
  const workspace = path.join(folder, "workspace");
  const state = path.join(folder, "state");
  await fs.mkdir(workspace);
  const model = await endpoint(t, script);
  const construction = parseConstruction({ systemPrompt, model: { provider, id: "fake-model" }, approval, options });
  const make = () => new Sessions({ state, modelUrl: model.url });
  let sessions = make();
  const id = await sessions.create(workspace, construction);
  return {
    id,
    model,
    workspace,
    state,
    construction,
    get sessions() {
      return sessions;
    },
    /** @param {string | object} asked text, or what parsePrompt gives */
    async prompt(asked, { onUpdate = () => {}, signal = new AbortController().signal } = {}) {
      const updates = [];
      const usages = [];
      const prompt = typeof asked === "string" ? { message: { text: asked, images: [], documents: [] } } : asked;
      const send = async (update) => {
        if (update.usage) usages.push(update.usage);
        else updates.push(update);
        await onUpdate(update);
      };
      try {
        return { result: await sessions.prompt(id, prompt, { send, signal }), updates, usages };
      } catch (error) {
        return { error, updates, usages };
      }
    },
    /** Opens the session anew, as another process would. */
    async restart() {
      sessions = make();
      await sessions.recover();
      await sessions.resume(id, workspace, construction);
    },
  };
}

/** The concatenated text of chunks of a kind. */
export function textOf(updates, kind = "agent_message_chunk") {
  return updates
    .filter((update) => update.sessionUpdate === kind)
    .map((update) => update.content.text)
    .join("");
}

export const ofKind = (updates, kind) => updates.filter((update) => update.sessionUpdate === kind);

/** Our part of an update's metadata. */
export const metaOf = (update) => update._meta?.["harness-engine"] ?? {};
