// Serves the benchmark's subscription with graphql-yoga and graphql-ws over ws, wired as their documentation does, with
// Yoga's in-memory publish and subscribe.
import { setMaxListeners } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { useServer } from 'graphql-ws/use/ws';
import { createPubSub, createSchema, createYoga } from 'graphql-yoga';
import { WebSocketServer } from 'ws';

setMaxListeners(0); // as many subscribers as there are, without a warning
const pubSub = createPubSub();
const schema = createSchema({
  typeDefs: readFileSync(new URL('../schema.graphqls', import.meta.url), 'utf8'),
  resolvers: {
    Query: { ready: () => true },
    Subscription: {
      runEvents: { subscribe: (_, { runId }) => pubSub.subscribe('run', runId), resolve: (batch) => batch },
    },
  },
});
const yoga = createYoga({ schema, logging: false });

const typename = (type) => type.split('.').map((p) => p[0].toUpperCase() + p.slice(1)).join('') + 'Event';

// play publishes the script's events of one run; bench/peers/play/play.go says the same in Go.
async function play(script, runId) {
  let sequence = 0;
  const emit = (event) => {
    sequence++;
    const full = { __typename: typename(event.type), runId, sequence, time: new Date().toISOString(), namespace: [], ...event };
    pubSub.publish('run', runId, { events: [full], through: sequence, caughtUp: true });
  };
  const say = async (messageId, n) => {
    emit({ type: 'text.started', messageId, role: 'assistant' });
    for (let i = 0; i < n; i++) {
      if (script.everyMs > 0) await sleep(script.everyMs);
      else if (i % 50 === 0) await sleep(0); // lets what was published be written
      emit({ type: 'text.delta', messageId, delta: script.word });
    }
    emit({ type: 'text.finished', messageId });
  };
  emit({ type: 'run.started' });
  await say('msg_1', script.warm);
  await sleep(script.pauseMs);
  await say('msg_2', script.count);
  await sleep(script.pauseMs);
  emit({ type: 'run.finished' });
}

const server = createServer((request, response) => {
  if (request.method !== 'POST' || request.url !== '/play') {
    yoga(request, response);
    return;
  }
  let body = '';
  request.on('data', (part) => { body += part; });
  request.on('end', () => {
    const script = JSON.parse(body);
    script.runs.forEach((run, i) => { sleep((script.everyMs * i) / script.runs.length).then(() => play(script, run)); });
    response.writeHead(202).end();
  });
});

const sockets = new WebSocketServer({ server, path: yoga.graphqlEndpoint });
useServer({
  execute: (args) => args.rootValue.execute(args),
  subscribe: (args) => args.rootValue.subscribe(args),
  onSubscribe: async (ctx, _id, params) => {
    const { schema, execute, subscribe, contextFactory, parse, validate } = yoga.getEnveloped({
      ...ctx, req: ctx.extra.request, socket: ctx.extra.socket, params,
    });
    const args = {
      schema, operationName: params.operationName, document: parse(params.query), variableValues: params.variables,
      contextValue: await contextFactory(), rootValue: { execute, subscribe },
    };
    const errors = validate(args.schema, args.document);
    return errors.length ? errors : args;
  },
}, sockets);

server.listen(0, '127.0.0.1', () => console.log(`listening on http://127.0.0.1:${server.address().port}`));
