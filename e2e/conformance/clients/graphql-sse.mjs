import { setTimeout as sleep } from 'node:timers/promises'
import { createClient, NetworkError } from 'graphql-sse'

const { ENGINE, TOKEN, AGENT, TEXT } = process.env

const client = createClient({
  url: `${ENGINE}/graphql`,
  headers: () => ({ Authorization: `Bearer ${TOKEN}` }),
  retryAttempts: 0, // its own retry would subscribe with the first cursor again
})

// Queries and mutations answer once.
async function ask(query, variables) {
  for await (const { data, errors } of client.iterate({ query, variables })) {
    if (errors) throw errors
    return data
  }
}

// A subscription from the cursor of the moment, again and again until the engine says that the run is complete.
async function* runEvents({ id: runId, logEpoch }, after = 0) {
  const query = `subscription ($runId: ID!, $logEpoch: ID, $after: Int!) {
    runEvents(runId: $runId, logEpoch: $logEpoch, after: $after) {
      through events { sequence type ... on TextDeltaEvent { delta } }
    }
  }`
  for (let wait = 100; ; wait = Math.min(2 * wait, 10_000)) {
    try {
      for await (const { data, errors } of client.iterate({ query, variables: { runId, logEpoch, after } })) {
        if (errors) throw errors
        yield* data.runEvents.events
        after = data.runEvents.through
        wait = 100
      }
      return
    } catch (reason) {
      if (!passes(reason)) throw reason
    }
    await sleep(wait * (0.5 + Math.random()))
  }
}

// What the network did passes, and so does what the engine says with "later"; a status such as 401 does not.
function passes(reason) {
  if (Array.isArray(reason)) return ['CAPACITY', 'AUTHORIZATION_UNAVAILABLE'].includes(reason[0].extensions?.code)
  return reason instanceof NetworkError && !(reason.response && reason.response.status !== 503)
}

const { agent } = await ask('query ($id: ID!) { agent(id: $id) { name } }', { id: AGENT })
console.log(`agent ${agent.name}`)
const { startRun } = await ask(
  `mutation ($in: StartRunInput!) {
    startRun(input: $in) { ... on StartRunSuccess { run { id logEpoch } } ... on Problem { code message } }
  }`,
  { in: { agentId: AGENT, message: { text: TEXT } } },
)
if (!startRun.run) throw new Error(startRun.message)
console.log(`run ${startRun.run.id}`)
for await (const event of runEvents(startRun.run)) console.log(JSON.stringify(event))
console.log('complete')
