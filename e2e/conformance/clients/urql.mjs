import { setTimeout as sleep } from 'node:timers/promises'
import { Client, fetchExchange, gql, subscriptionExchange } from 'urql'
import { onEnd, pipe, subscribe } from 'wonka'
import { createClient } from 'graphql-ws'
import WebSocket from 'ws' // a browser brings its own: leave webSocketImpl out there

const { ENGINE, TOKEN, AGENT, TEXT } = process.env

const socket = createClient({
  url: `${ENGINE.replace(/^http/, 'ws')}/graphql`,
  webSocketImpl: WebSocket,
  connectionParams: () => ({ Authorization: `Bearer ${TOKEN}` }),
  retryAttempts: 0, // its own retry would subscribe with the first cursor again
})
const client = new Client({
  url: `${ENGINE}/graphql`,
  preferGetMethod: false,
  fetchOptions: () => ({ headers: { Authorization: `Bearer ${TOKEN}` } }),
  exchanges: [
    fetchExchange,
    subscriptionExchange({
      forwardSubscription: ({ query, variables }) => ({
        subscribe: (sink) => ({ unsubscribe: socket.subscribe({ query, variables }, sink) }),
      }),
    }),
  ],
})

const RUN_EVENTS = gql`subscription ($runId: ID!, $logEpoch: ID, $after: Int!) {
  runEvents(runId: $runId, logEpoch: $logEpoch, after: $after) {
    through events { sequence type ... on TextDeltaEvent { delta } }
  }
}`

// A subscription from the cursor of the moment, again and again until the engine says that the run is complete.
async function followRun({ id: runId, logEpoch }, onEvent, after = 0) {
  for (let wait = 100; ; wait = Math.min(2 * wait, 10_000)) {
    const failure = await new Promise((settle) => {
      pipe(
        client.subscription(RUN_EVENTS, { runId, logEpoch, after }),
        onEnd(settle), // without an argument: the end of the run
        subscribe(({ data, error, hasNext }) => {
          if (error) return settle(error) // urql tells of a lost connection here, and then ends
          if (!hasNext) return // at the end it gives the last result once more
          for (const { __typename, ...event } of data.runEvents.events) onEvent(event)
          after = data.runEvents.through
          wait = 100
        }),
      )
    })
    if (!failure) return
    if (!passes(failure)) throw failure
    await sleep(wait * (0.5 + Math.random()))
  }
}

// GraphQL errors are final, but for those that say "later"; of the close codes, those of the protocol are a bug, and
// 4403 wants another token.
function passes({ graphQLErrors, networkError }) {
  if (graphQLErrors.length > 0) return ['CAPACITY', 'AUTHORIZATION_UNAVAILABLE'].includes(graphQLErrors[0].extensions?.code)
  const code = networkError?.code
  return !(code >= 4400 && code < 4500 && code !== 4408)
}

async function ask(answer) {
  const { data, error } = await answer.toPromise()
  if (error) throw error
  return data
}

const { agent } = await ask(client.query(gql`query ($id: ID!) { agent(id: $id) { name } }`, { id: AGENT }))
console.log(`agent ${agent.name}`)
const { startRun } = await ask(client.mutation(
  gql`mutation ($in: StartRunInput!) {
    startRun(input: $in) { ... on StartRunSuccess { run { id logEpoch } } ... on Problem { code message } }
  }`,
  { in: { agentId: AGENT, message: { text: TEXT } } },
))
if (!startRun.run) throw new Error(startRun.message)
console.log(`run ${startRun.run.id}`)
await followRun(startRun.run, (event) => console.log(JSON.stringify(event)))
console.log('complete')
