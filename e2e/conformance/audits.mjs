// Runs every audit of GraphQL over HTTP that the npm package graphql-http has against a server, and prints each that is
// not plainly ok: node audits.mjs URL. The token is in TOKEN. A warning or a notice fails as an error does.
import { serverAudits } from 'graphql-http'

const expected = 61 // of graphql-http 1.23.1: fewer would be another package
const url = process.argv[2]
const headers = {
  authorization: `Bearer ${process.env.TOKEN}`,
  'x-harness-csrf': '1', // the audits also ask by GET, which the engine takes from no foreign page
}

const fetchFn = (target, init = {}) => fetch(target, { ...init, headers: { ...headers, ...init.headers } })
const results = []
for (const audit of serverAudits({ url, fetchFn })) {
  results.push(await audit.fn())
}

const count = { ok: 0, notice: 0, warn: 0, error: 0 }
for (const { id, name, status, reason, response } of results) {
  count[status]++
  if (status !== 'ok') {
    const body = response && !response.bodyUsed ? (await response.text()).slice(0, 300) : ''
    console.log(`  ${status} ${id} ${name}: ${reason} ${response ? `(status ${response.status}) ${body}` : ''}`)
  }
}
console.log(`  graphql-http audits: ${count.ok} of ${results.length} ok, ${count.notice} notices, ${count.warn} warnings, ${count.error} errors`)
process.exitCode = count.ok === expected && results.length === expected ? 0 : 1
