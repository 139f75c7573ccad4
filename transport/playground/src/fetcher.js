import { createGraphiQLFetcher } from '@graphiql/toolkit';
import { createClient } from 'graphql-ws';

// makeFetcher sends queries and mutations by POST, and subscriptions over graphql-transport-ws.
export function makeFetcher(token) {
  const http = new URL('graphql', location.href);
  const ws = new URL(http);
  ws.protocol = http.protocol === 'https:' ? 'wss:' : 'ws:';
  const authorization = token ? { Authorization: `Bearer ${token}` } : {};
  return createGraphiQLFetcher({
    url: http.href,
    headers: authorization,
    wsClient: createClient({ url: ws.href, lazy: true, retryAttempts: 3, connectionParams: authorization }),
  });
}
