// Writes checkpoints and their pending writes as fast as it can until it is killed, and says on standard output what is
// durable: one line `c N` or `w N` after each operation.
import { FileSaver } from "../deepagents/checkpoints.mjs";
import { checkpoint, config } from "./checkpoints.mjs";

const [root, first] = process.argv.slice(2);
const saver = new FileSaver({ root });
await saver.recover();
for (let n = Number(first); ; n++) {
  await saver.put(config({ checkpoint_id: n > 0 ? checkpoint(n - 1).id : undefined }), checkpoint(n), { step: n }, {});
  process.stdout.write(`c ${n}\n`);
  await saver.putWrites(config({ checkpoint_id: checkpoint(n).id }), [["channel", { n }]], "task", "path");
  process.stdout.write(`w ${n}\n`);
}
