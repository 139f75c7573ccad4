import assert from "node:assert/strict";
import fs from "node:fs/promises";
import path from "node:path";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { MAX_FILE_BYTES } from "./bounds.mjs";
import { Workspace, observeFiles } from "./workspace.mjs";
import { scratch } from "../testing/turns.mjs";

const SECRET = "secret-outside";

/** A workspace with a neighbour whose name begins like its own, and links that lead out of it. */
async function setup(t) {
  const folder = await scratch(t);
  const root = path.join(folder, "ws");
  await fs.mkdir(path.join(root, "sub"), { recursive: true });
  await fs.mkdir(path.join(folder, "ws2"));
  await fs.writeFile(path.join(folder, "secret.txt"), SECRET);
  await fs.writeFile(path.join(folder, "ws2", "secret.txt"), SECRET);
  await fs.writeFile(path.join(root, "in.txt"), "inside\n");
  await fs.symlink(path.join(folder, "secret.txt"), path.join(root, "link.txt"));
  await fs.symlink(folder, path.join(root, "up"));
  await fs.symlink("/", path.join(root, "slash"));
  return { folder, root, workspace: new Workspace(root) };
}

/** Paths that try to leave a workspace whose parent is folder. */
const escapes = (folder) => [
  "../secret.txt",
  "/../secret.txt",
  "sub/../../secret.txt",
  "./../secret.txt",
  "~/secret.txt",
  "~root/secret.txt",
  path.join(folder, "secret.txt"),
  `/${path.join(folder, "secret.txt")}`,
  "/ws2/secret.txt",
  "..%2fsecret.txt",
  "..\\secret.txt",
  "link.txt",
  "/up/secret.txt",
  `/slash${path.join(folder, "secret.txt")}`,
  "/up/ws2/secret.txt",
  "secret.txt\0.png",
  "/proc/self/environ",
  "/slash/proc/self/environ",
];

test("no path reads outside the root", async (t) => {
  const { folder, root, workspace } = await setup(t);
  for (const escape of escapes(folder)) {
    const result = await workspace.read(escape);
    assert.ok(result.error, escape);
    assert.equal(JSON.stringify(result).includes(SECRET), false, escape);
    assert.equal(result.error.includes(root), false, `${escape}: ${result.error}`);
    await assert.rejects(workspace.readRaw(escape), (error) => !error.message.includes(root), escape);
    const [downloaded] = await workspace.downloadFiles([escape]);
    assert.ok(downloaded.error, escape);
  }
});

test("no path writes, edits or deletes outside the root", async (t) => {
  const { folder, root, workspace } = await setup(t);
  const tree = () => execFileSync("find", [folder, "-path", path.join(folder, "ws"), "-prune", "-o", "-print"], { encoding: "utf8" }).split("\n").sort();
  const before = tree();
  for (const escape of escapes(folder)) {
    for (const result of [await workspace.write(escape, "owned"), await workspace.edit(escape, SECRET, "owned")]) {
      if (result.error) assert.equal(result.error.includes(root), false, `${escape}: ${result.error}`);
    }
    await workspace.uploadFiles([[escape, Buffer.from("owned")]]);
    await workspace.delete(escape);
  }
  assert.deepEqual(tree(), before);
  assert.equal(await fs.readFile(path.join(folder, "secret.txt"), "utf8"), SECRET);
  assert.equal(await fs.readFile(path.join(folder, "ws2", "secret.txt"), "utf8"), SECRET);
});

test("deleting a link removes the link, not what it points to", async (t) => {
  const { folder, root, workspace } = await setup(t);
  await workspace.delete("/up");
  await assert.rejects(fs.lstat(path.join(root, "up")), { code: "ENOENT" });
  assert.equal(await fs.readFile(path.join(folder, "secret.txt"), "utf8"), SECRET);
});

test("searches show nothing from outside the root", async (t) => {
  const { workspace } = await setup(t);
  const patterns = ["../*", "../**", "sub/../../*", "{..,sub}/*", ".{.,x}/*", "@(..)/*", "[.][.]/*", "up/**", "slash/*", "**/secret.txt", "link.txt", "/../*", "**/*"];
  for (const pattern of patterns) {
    const { files = [] } = await workspace.glob(pattern, "/");
    const paths = files.map((file) => file.path);
    assert.ok(paths.every((found) => found === "/in.txt"), `${pattern}: ${paths}`);
  }
  for (const where of ["/", "/up", "/slash", "..", "/link.txt"]) {
    const { matches } = await workspace.grep("secret", where);
    assert.deepEqual(matches, [], where);
    const { files } = await workspace.ls(where);
    if (where !== "/") assert.deepEqual(files, [], where);
  }
  const { matches } = await workspace.grep("inside", "/");
  assert.deepEqual(
    matches.map((match) => match.path),
    ["/in.txt"],
  );
});

test("ordinary work works", async (t) => {
  const { root, workspace } = await setup(t);
  assert.equal((await workspace.write("/deep/er/ü 🙂.txt", "one two")).error, undefined);
  assert.equal((await workspace.edit("/deep/er/ü 🙂.txt", "two", "three")).occurrences, 1);
  assert.match((await workspace.read("/deep/er/ü 🙂.txt")).content, /one three/);
  assert.equal(await fs.readFile(path.join(root, "deep/er/ü 🙂.txt"), "utf8"), "one three");
  assert.deepEqual(
    (await workspace.glob("**/*.txt", "/")).files.map((file) => file.path),
    ["/deep/er/ü 🙂.txt", "/in.txt"],
  );
});

test("large files and things that are not files are refused at once", async (t) => {
  const { root, workspace } = await setup(t);
  await fs.writeFile(path.join(root, "large.txt"), "");
  await fs.truncate(path.join(root, "large.txt"), MAX_FILE_BYTES + 1);
  execFileSync("mkfifo", [path.join(root, "pipe")]);
  for (const name of ["/large.txt", "/pipe"]) {
    assert.ok((await workspace.read(name)).error, name);
    assert.ok((await workspace.edit(name, "a", "b")).error, name);
  }
  assert.ok((await workspace.write("/pipe", "x")).error);
});

test("a failure in a call is observed, also when calls overlap", async (t) => {
  const { workspace } = await setup(t);
  const [bad, good] = await Promise.all([observeFiles(() => workspace.read("/none")), observeFiles(() => workspace.read("/in.txt"))]);
  assert.equal(bad.failed, true);
  assert.equal(good.failed, false);
});
