// What a person does with the pages, in a real Chromium: `node browser.mjs ADDRESS TOKEN THREAD`. Ends with 1 and the reasons when something is wrong.
import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';

const require = createRequire(`${process.env.HAPAX_CLIENTS}/node/`);
const { chromium } = require('playwright-core');
const axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');

const [base, token, thread] = process.argv.slice(2);
const chat = `${base}/threads/${thread}`;
const wrong = [];
const expect = (holds, words) => holds || wrong.push(words);
const flags = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync'];
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM || '/usr/bin/chromium', args: flags });

async function signedIn(options) {
  const context = await browser.newContext(options);
  context.setDefaultTimeout(60_000);
  const page = await context.newPage();
  page.on('dialog', (dialog) => { wrong.push(`a dialog: ${dialog.message()}`); dialog.dismiss(); });
  page.on('pageerror', (error) => wrong.push(`an error in the page: ${error}`));
  page.on('console', (line) => { if (line.type() === 'error') wrong.push(`the console of ${page.url()}: ${line.text()}`); });
  await page.goto(`${base}/sign-in`);
  await page.fill('[name=token]', token);
  await page.click('button[type=submit]');
  await page.waitForURL(`${base}/`);
  return page;
}

async function write(page, text, send) {
  await page.fill('textarea[name=text]', text);
  await send();
  await page.getByText(text).first().waitFor();
}

// Twice at once, each in its own way: one message each.
const page = await signedIn({});
await page.goto(chat);
await write(page, 'a double click', () => page.dblclick('form.compose button[type=submit]'));
await write(page, 'Enter, and Enter again', async () => {
  await page.focus('textarea[name=text]');
  await Promise.all([page.keyboard.press('Enter'), page.keyboard.press('Enter')]).catch(() => {});
});
await page.reload();
await write(page, 'typed twice', () => page.click('form.compose button[type=submit]'));
await page.fill('textarea[name=text]', 'typed twice');
await page.click('form.compose button[type=submit]');
await page.getByText('typed twice').nth(1).waitFor();

// A message arrives while its list is open, and its story can be read.
const list = await page.context().newPage();
await list.goto(`${base}/events`);
const before = await list.locator('tbody tr').count();
await page.goto(`${base}/channels/shop`);
await page.getByText('Post it, signed').click();
await list.waitForFunction((count) => document.querySelectorAll('tbody tr').length > count, before);
await list.locator('tbody tr a').first().click();
await list.getByRole('heading', { name: 'Story' }).waitFor();
await list.close();

// Without a script: it lists, shows and sends.
const plain = await signedIn({ javaScriptEnabled: false });
await plain.goto(chat);
await plain.fill('textarea[name=text]', 'without a script');
await plain.click('form.compose button[type=submit]');
await plain.goto(chat);
expect((await plain.textContent('main')).includes('without a script'), 'without a script nothing was sent');
await plain.context().close();

// Everybody can read it, in the light and in the dark, on a desk and on a phone.
const pages = ['/', '/events', '/threads', `/threads/${thread}`, '/outbox', '/parked', '/claims', '/accounts', '/channels', '/channels/shop',
  '/tokens', '/audit', '/settings', '/docs'];
for (const [colorScheme, width] of [['light', 1280], ['dark', 390]]) {
  const looker = await signedIn({ colorScheme, viewport: { width, height: 844 }, bypassCSP: true });
  for (const path of pages) {
    await looker.goto(base + path);
    const wider = await looker.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    expect(wider <= 0, `${path} at ${width}: ${wider} pixels wider than the screen`);
    await looker.evaluate(axe);
    const { violations } = await looker.evaluate(() => axe.run());
    for (const { id, impact, nodes } of violations.filter(({ impact }) => ['serious', 'critical'].includes(impact))) {
      wrong.push(`${path} (${colorScheme}): ${impact}: ${id}: ${nodes.slice(0, 2).map((node) => node.html.slice(0, 160)).join(' | ')}`);
    }
  }
  await looker.context().close();
}

await browser.close();
console.log(wrong.join('\n') || 'all is well');
process.exit(wrong.length ? 1 : 0);
