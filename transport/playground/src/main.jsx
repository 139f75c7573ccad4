import './workers.js';
import { GraphiQL } from 'graphiql';
import 'graphiql/style.css';
import { useMemo, useState } from 'react';
import { createRoot } from 'react-dom/client';

import { makeFetcher } from './fetcher.js';
import './page.css';
import { keepToken, takeToken } from './token.js';

const example = `# Harness Engine. The schema needs the permission can_introspect; without it there is no completion.
query Start {
  viewer {
    subject
    canCreateAgent
  }
  harnesses {
    id
    displayName
    availability
    certification
  }
}
`;

function Page() {
  const [token, setToken] = useState(takeToken);
  const fetcher = useMemo(() => makeFetcher(token), [token]);
  const use = (event) => {
    event.preventDefault();
    const given = new FormData(event.currentTarget).get('token').trim();
    keepToken(given);
    setToken(given);
  };
  return (
    <>
      <form className="token" onSubmit={use}>
        <label htmlFor="token">Token</label>
        <input id="token" name="token" type="password" autoComplete="off" spellCheck={false} defaultValue={token} />
        <button type="submit">Use</button>
      </form>
      <div className="graphiql">
        <GraphiQL key={token} fetcher={fetcher} defaultQuery={example} shouldPersistHeaders={false} />
      </div>
    </>
  );
}

createRoot(document.getElementById('root')).render(<Page />);
