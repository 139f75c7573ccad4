// The token comes in the page's fragment, which no server and no log sees, and lives as long as the tab.
const key = 'harness-engine:token';

export function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get('token');
  if (given) {
    sessionStorage.setItem(key, given);
    history.replaceState(null, '', location.pathname + location.search);
  }
  return sessionStorage.getItem(key) ?? '';
}

export function keepToken(token) {
  if (token) sessionStorage.setItem(key, token);
  else sessionStorage.removeItem(key);
}
