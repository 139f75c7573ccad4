// Standard output carries the protocol and nothing else. Import this module first: whatever a library prints goes to
// standard error from then on.
import { Console } from "node:console";

globalThis.console = new Console({ stdout: process.stderr, stderr: process.stderr });
