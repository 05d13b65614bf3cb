// What the browser tests share: a real Chromium, people who have signed in, the test outside that does what a page cannot, and what was wrong.
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

export const require = createRequire(`${process.env.HAPAX_CLIENTS}/node/`);
const { chromium } = require('playwright-core');

export const [base, token, thread] = process.argv.slice(2);
export const chat = `${base}/threads/${thread}`;
export const box = 'textarea[name=text]', button = 'form.compose button[type=submit]';
export const wrong = [];
export const expect = (holds, words) => holds || wrong.push(words);
// While hapax is away, the console says so.
export const away = { now: false };

const flags = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync'];
export const browser = await chromium.launch({ executablePath: process.env.CHROMIUM || '/usr/bin/chromium', args: flags });

function watch(page) {
  page.on('dialog', (dialog) => { wrong.push(`a dialog: ${dialog.message()}`); dialog.dismiss(); });
  page.on('pageerror', (error) => wrong.push(`an error in the page: ${error}`));
  page.on('console', (line) => {
    if (line.type() === 'error' && !(away.now && line.text().includes('net::ERR_'))) wrong.push(`the console of ${page.url()}: ${line.text()}`);
  });
}

export async function signedIn(options) {
  const context = await browser.newContext(options);
  context.setDefaultTimeout(90_000);
  context.on('page', watch);
  const page = await context.newPage();
  await page.goto(`${base}/sign-in`);
  await page.fill('[name=token]', token);
  await page.click('button[type=submit]');
  await page.waitForURL(`${base}/`);
  return page;
}

export async function write(page, text, send = () => page.click(button)) {
  await page.fill(box, text);
  await send();
  await page.getByText(text).first().waitFor();
}

// Has the test do something, and waits until it did.
let answers = null;
export async function ask(what) {
  answers ??= createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  console.log(`do ${what}`);
  await answers.next();
}

export async function end() {
  await browser.close();
  console.log(wrong.join('\n') || 'all is well');
  process.exit(wrong.length ? 1 : 0);
}
