// Monaco asks for its workers by label; each is a file of its own, so that the page's policy needs no blob: or eval.
const files = { json: 'json.worker.js', graphql: 'graphql.worker.js' };

globalThis.MonacoEnvironment = {
  getWorker: (_id, label) => new Worker(new URL(files[label] ?? 'editor.worker.js', import.meta.url)),
};
