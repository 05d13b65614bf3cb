// What a person does with the pages, in a real Chromium: `node browser.mjs ADDRESS TOKEN THREAD`. Ends with 1 and the reasons when something is wrong.
import { readFileSync } from 'node:fs';
import { base, box, button, chat, end, expect, require, signedIn, thread, write, wrong } from './browser_kit.mjs';

const axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');

// Twice at once, each in its own way: one message each.
const page = await signedIn({});
await page.goto(chat);
await write(page, 'a double click', () => page.dblclick(button));
await write(page, 'Enter, and Enter again', async () => {
  await page.focus(box);
  await Promise.all([page.keyboard.press('Enter'), page.keyboard.press('Enter')]).catch(() => {});
});
await page.reload();
await write(page, 'typed twice');
await page.fill(box, 'typed twice');
await page.click(button);
await page.getByText('typed twice').nth(1).waitFor();

// What is hostile stays a text, wherever it is shown: an alert would be a dialog, and what the policy stops a line of the console.
await write(page, `'"><img src=x onerror=alert(5)></textarea><script>alert(6)</script>`);

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

// Without a script: it lists, shows and sends, and each form does what it says.
const plain = await signedIn({ javaScriptEnabled: false });
const says = (words) => plain.getByText(words).first().waitFor();
const press = async (summary, submit = summary) => {
  await plain.locator('summary', { hasText: summary }).first().click();
  await plain.locator('details[open] form button', { hasText: submit }).first().click();
};
await plain.goto(`${base}/events`);
await plain.fill('[name=q]', 'kind:message');
await plain.getByRole('button', { name: 'Filter' }).click();
await plain.locator('tbody tr a').first().click();
await plain.getByRole('heading', { name: 'Story' }).waitFor();
await press('Replay');
await says('It is in line once more');
await plain.goto(chat);
await press('Take over');
await says('This thread is yours');
await plain.getByRole('button', { name: 'Hand back to the bot' }).click();
await says('The bot has this thread again');
await plain.goto(`${base}/tokens`);
await plain.fill('[name=name]', 'by-hand');
await plain.check('[name=scope_read]');
await plain.getByRole('button', { name: 'Make it' }).click();
await says('Copy it now');
const made = plain.locator('tr', { hasText: 'by-hand' });
await made.locator('summary').click();
await made.locator('form button').click();
await says('The token by-hand opens nothing any more');
await plain.goto(`${base}/channels/shop`);
await plain.getByRole('button', { name: 'Post it, signed' }).click();
await says('was taken: 200');
await plain.goto(chat);
await plain.fill(box, 'without a script');
await plain.click(button);
await plain.goto(chat);
expect((await plain.textContent('main')).includes('without a script'), 'without a script nothing was sent');
await plain.context().close();

// Everybody can read it, in the light and in the dark, on a desk and on a phone.
await page.goto(`${base}/events?q=kind:message`);
const story = await page.locator('tbody tr a').last().getAttribute('href');
const pages = ['/', '/?range=week', story, '/events?q=nothing:', '/events', '/threads', `/threads/${thread}`, '/outbox', '/parked', '/claims', '/accounts', '/channels', '/channels/shop', '/new-channel',
  '/tokens', '/audit', '/settings', '/docs'];
for (const [colorScheme, width] of [['light', 1280], ['dark', 1280], ['light', 390], ['dark', 390]]) {
  const looker = await signedIn({ colorScheme, viewport: { width, height: 844 }, bypassCSP: true });
  for (const path of [...pages, '/sign-in']) {
    // The door is for those who are outside.
    if (path === '/sign-in') await looker.context().clearCookies();
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
await end();
