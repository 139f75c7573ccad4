#!/usr/bin/env node
// Serves the Deep Agents harness over the Agent Client Protocol on standard input and output.
//
// Environment: HARNESS_STATE, the folder of what must outlive this process; MODEL_URL, the base URL of the model proxy.
import "./stdio.mjs";
import { Readable, Writable } from "node:stream";
import { readFileSync } from "node:fs";
import * as acp from "@agentclientprotocol/sdk";
import { makeAgent } from "./agent.mjs";
import { MAX_LINE_BYTES } from "./bounds.mjs";
import { Sessions } from "./sessions.mjs";

/** Exit code for a wrong environment (sysexits.h, EX_USAGE). */
const EX_USAGE = 64;

function setting(name) {
  const value = process.env[name];
  if (value) return value;
  console.error(`${name} is not set`);
  process.exit(EX_USAGE);
}

const dependency = new URL("../node_modules/deepagents/package.json", import.meta.url);
const { version } = JSON.parse(readFileSync(dependency, "utf8"));
const sessions = new Sessions({ state: setting("HARNESS_STATE"), modelUrl: setting("MODEL_URL").replace(/\/+$/, "") });
await sessions.recover();

const stream = acp.ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin), { maxMessageBytes: MAX_LINE_BYTES });
const connection = makeAgent({ sessions, version, log: (error) => console.error(error) }).connect(stream);

// The end of standard input is the end of this process, also in the middle of a turn: all that matters is on disk.
await connection.closed;
process.exit(0);
