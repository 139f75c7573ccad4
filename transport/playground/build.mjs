// Bundles the playground into dist/: the page, one script with its chunks, one style sheet, and Monaco's workers.
import { build } from 'esbuild';
import { copyFile, mkdir, rm } from 'node:fs/promises';

const out = 'dist/assets';
await rm(out, { recursive: true, force: true });
await mkdir(out, { recursive: true });

const common = {
  bundle: true,
  minify: true,
  target: 'es2022',
  outdir: out,
  logLevel: 'warning',
  legalComments: 'linked',
  define: { 'process.env.NODE_ENV': '"production"' },
};

await build({
  ...common,
  entryPoints: { main: 'src/main.jsx' },
  format: 'esm',
  splitting: true,
  chunkNames: 'chunk-[hash]',
  jsx: 'automatic',
  loader: { '.ttf': 'file', '.woff2': 'file' },
  assetNames: 'font-[hash]',
});

await build({
  ...common,
  format: 'iife',
  entryPoints: {
    'editor.worker': 'monaco-editor/esm/vs/editor/editor.worker.js',
    'json.worker': 'monaco-editor/esm/vs/language/json/json.worker.js',
    'graphql.worker': 'monaco-graphql/esm/graphql.worker.js',
  },
});

await copyFile('src/index.html', 'dist/index.html');
