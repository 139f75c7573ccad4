// Drives the playground in a real browser: a query, then a subscription of a run to its end.
//
//   node playground.mjs URL RUN_ID SCREENSHOT
//
// URL is the playground's address with a token in its fragment. The browser is $CHROMIUM, else Debian's. It ends with 0
// when both answers were shown, and says what was missing otherwise.
import { chromium } from 'playwright-core';

const stepTimeout = 120_000; // a slow machine takes its time; what does not work never comes
const pasteTimeout = 15_000; // before it is pasted again
const [url, runId, screenshot] = process.argv.slice(2);
if (!screenshot) {
  console.error('usage: node playground.mjs URL RUN_ID SCREENSHOT');
  process.exit(2);
}

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM || '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-dev-shm-usage'],
  timeout: stepTimeout,
});
const complaints = [];
try {
  // The page must need no other host than the engine.
  const context = await browser.newContext({ viewport: { width: 1400, height: 800 } });
  const home = new URL(url).host;
  await context.route(
    (address) => address.host !== home && !['data:', 'blob:'].includes(address.protocol),
    (route) => {
      complaints.push(`the page asked for ${route.request().url()}`);
      return route.abort();
    },
  );
  const page = await context.newPage();
  page.setDefaultTimeout(stepTimeout);
  page.on('pageerror', (error) => complaints.push(`error in the page: ${error.message}`));
  page.on('console', (message) => {
    if (/Content Security Policy/i.test(message.text())) complaints.push(message.text());
  });

  await page.goto(url);
  await execute(page, 'Who', 'query Who { viewer { subject canCreateAgent } }', /"subject":\s*"[^"]+"/);
  await execute(
    page,
    'Watch',
    `subscription Watch { runEvents(runId: "${runId}") { through caughtUp events { type } } }`,
    /run\.finished/,
  );
  if (page.url().includes('token=')) complaints.push('the token is still in the address');
  await page.screenshot({ path: screenshot });
} finally {
  await browser.close();
}
if (complaints.length > 0) {
  console.error(complaints.join('\n'));
  process.exit(1);
}
console.log('playground: query and subscription answered');

// execute puts a document into the editor, runs it and waits until the answer shows what it must.
async function execute(page, name, document, answer) {
  const editor = page.locator('.graphiql-query-editor .monaco-editor').first();
  const deadline = Date.now() + 2 * stepTimeout;
  for (let pasted = false; !pasted; ) {
    await editor.click();
    await page.keyboard.press('ControlOrMeta+A');
    await page.keyboard.press('Delete');
    // Pasting goes in as it is; typing would have the editor close each bracket by itself.
    await page.evaluate((text) => {
      const data = new DataTransfer();
      data.setData('text/plain', text);
      window.document.activeElement.dispatchEvent(new ClipboardEvent('paste', { clipboardData: data, bubbles: true, cancelable: true }));
    }, document);
    // The editor reads what was pasted a moment later; then the tab has the operation's name. An editor that was not ready
    // yet takes nothing.
    pasted = await page.locator('.graphiql-tab', { hasText: name }).waitFor({ timeout: pasteTimeout }).then(() => true, (late) => {
      if (Date.now() > deadline) throw late;
      return false;
    });
  }
  await page.locator('.graphiql-execute-button').click();
  const shown = page.locator('.graphiql-response .view-lines');
  let text = '';
  while (Date.now() < deadline) {
    text = ((await shown.textContent().catch(() => '')) ?? '').replaceAll('\u00a0', ' ');
    if (answer.test(text)) return;
    await page.waitForTimeout(100);
  }
  await page.screenshot({ path: screenshot });
  throw new Error(`the answer to ${document} is ${JSON.stringify(text)}, it does not match ${answer}`);
}
