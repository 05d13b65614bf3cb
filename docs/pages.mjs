// Takes the pictures of the pages in docs/images: `node docs/pages.mjs ADDRESS TOKEN THREAD`, with a hapax that has something to show. Needs
// Chromium and playwright-core, which tests/install-clients.sh puts into target/clients.
import { createRequire } from 'node:module';

const require = createRequire(new URL('../target/clients/node/', import.meta.url));
const { chromium } = require('playwright-core');
const [base, token, thread] = process.argv.slice(2);
const folder = new URL('images/', import.meta.url).pathname;
const pictures = [
  ['overview', '/', 'light', 1280],
  ['overview-dark', '/', 'dark', 1280],
  ['chat', `/threads/${thread}`, 'light', 1280],
  ['chat-phone', `/threads/${thread}`, 'dark', 390],
  ['events-phone', '/events', 'light', 390],
];
const browser = await chromium.launch({
  executablePath: '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking', '--disable-sync'],
});
for (const [name, path, colorScheme, width] of pictures) {
  const context = await browser.newContext({ colorScheme, viewport: { width, height: 844 } });
  const page = await context.newPage();
  await page.goto(`${base}/sign-in`);
  await page.fill('[name=token]', token);
  await page.click('button[type=submit]');
  await page.waitForURL(`${base}/`);
  await page.goto(base + path);
  await page.screenshot({ path: `${folder}${name}.png` });
  await context.close();
}
await browser.close();
