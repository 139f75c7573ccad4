import { setTimeout as sleep } from 'node:timers/promises'
import { ApolloClient, ApolloLink, CombinedGraphQLErrors, HttpLink, InMemoryCache, gql } from '@apollo/client'
import { GraphQLWsLink } from '@apollo/client/link/subscriptions'
import { createClient } from 'graphql-ws'
import WebSocket from 'ws'

globalThis.WebSocket ??= WebSocket // browsers, and Node from 22 on, bring their own

const { ENGINE, TOKEN, AGENT, TEXT } = process.env

let closeCode // of the last socket: Apollo tells of it in words only
const client = new ApolloClient({
  cache: new InMemoryCache(),
  link: ApolloLink.split(
    ({ operationType }) => operationType === 'subscription',
    new GraphQLWsLink(createClient({
      url: `${ENGINE.replace(/^http/, 'ws')}/graphql`,
      connectionParams: () => ({ Authorization: `Bearer ${TOKEN}` }),
      on: { closed: (event) => { closeCode = event.code } },
      retryAttempts: 0, // its own retry would subscribe with the first cursor again
    })),
    new HttpLink({ uri: `${ENGINE}/graphql`, headers: { Authorization: `Bearer ${TOKEN}` } }),
  ),
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
      client.subscribe({ query: RUN_EVENTS, variables: { runId, logEpoch, after }, fetchPolicy: 'no-cache' }).subscribe({
        next: ({ data, error }) => {
          if (error) return settle(error) // Apollo tells of a lost connection here, and then completes
          for (const { __typename, ...event } of data.runEvents.events) onEvent(event)
          after = data.runEvents.through
          wait = 100
        },
        error: settle,
        complete: settle, // without an argument: the end of the run
      })
    })
    if (!failure) return
    if (!passes(failure)) throw failure
    await sleep(wait * (0.5 + Math.random()))
  }
}

// GraphQL errors are final, but for those that say "later"; of the close codes, those of the protocol are a bug, and
// 4403 wants another token.
function passes(failure) {
  if (CombinedGraphQLErrors.is(failure)) {
    return ['CAPACITY', 'AUTHORIZATION_UNAVAILABLE'].includes(failure.errors[0].extensions?.code)
  }
  return !(closeCode >= 4400 && closeCode < 4500 && closeCode !== 4408)
}

const { data: { agent } } = await client.query({
  query: gql`query ($id: ID!) { agent(id: $id) { id name } }`, variables: { id: AGENT },
})
console.log(`agent ${agent.name}`)
const { data: { startRun } } = await client.mutate({
  mutation: gql`mutation ($in: StartRunInput!) {
    startRun(input: $in) { ... on StartRunSuccess { run { id logEpoch } } ... on Problem { code message } }
  }`,
  variables: { in: { agentId: AGENT, message: { text: TEXT } } },
})
if (!startRun.run) throw new Error(startRun.message)
console.log(`run ${startRun.run.id}`)
await followRun(startRun.run, (event) => console.log(JSON.stringify(event)))
console.log('complete')
