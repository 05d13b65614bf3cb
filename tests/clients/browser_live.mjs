// Pages that stay open while things happen: `node browser_live.mjs ADDRESS TOKEN THREAD`.
import { ask, away, base, box, button, chat, end, expect, signedIn, write } from './browser_kit.mjs';

// Nothing of this needs the page to be loaded anew.
const mark = (page) => page.evaluate(() => { window.stayed = true; });
const stayed = async (page, where) => expect(await page.evaluate(() => window.stayed === true), `${where}: the page was loaded anew`);

// How far a message has come is seen as it goes.
const page = await signedIn({});
await page.goto(chat);
await write(page, 'watch me');
await mark(page);
const tick = page.locator('li.bubble', { hasText: 'watch me' }).locator('.tick');
await tick.filter({ hasText: /queued|sending/ }).waitFor();
await ask('let go');
await tick.filter({ hasText: 'sent' }).waitFor();
for (const word of ['delivered', 'read']) {
  await ask(`status ${word} watch me`);
  await tick.filter({ hasText: word }).waitFor();
}
await stayed(page, 'ticks');

// A copy of a tab, and one that is opened again after the browser was closed, have what was written in it, and send it once. A colleague sees it.
const colleague = await signedIn({});
await colleague.goto(chat);
await mark(colleague);
await page.fill(box, 'from three tabs');
const kept = await page.evaluate(() => ({ ...sessionStorage }));
const [copy] = await Promise.all([page.context().waitForEvent('page'), page.evaluate(() => { open(location.href); })]);
await copy.locator(box).waitFor();
const restored = await page.context().newPage();
await restored.addInitScript((kept) => {
  if (sessionStorage.length === 0) for (const [name, value] of Object.entries(kept)) sessionStorage.setItem(name, value);
}, kept);
await restored.goto(chat);
for (const [tab, name] of [[copy, 'a copy'], [restored, 'one that is opened again']]) {
  expect(await tab.inputValue(box) === 'from three tabs', `${name} of a tab has lost what was written`);
}
await Promise.all([page, copy].map((tab) => tab.click(button)));
await colleague.getByText('from three tabs').waitFor();
await stayed(colleague, 'the tab of a colleague');
await restored.click(button);
await restored.getByText('from three tabs').waitFor();
for (const tab of [copy, restored]) {
  await tab.waitForFunction(() => document.querySelector('textarea[name=text]')?.value === '');
  await tab.close();
}
await colleague.context().close();

// Gone back to a box that was sent: sent again as it stands, it is the same message.
await write(page, 'back and again');
await page.goBack();
await page.locator(box).waitFor();
if (await page.inputValue(box)) await page.click(button);

// An event goes to the bot once more.
await ask('post');
await page.goto(`${base}/events?q=kind:message`);
await page.locator('tbody tr a').first().click();
await page.getByRole('heading', { name: 'Story' }).waitFor();
await page.locator('summary', { hasText: 'Replay' }).click();
await page.locator('form[action$="/replay"] button').click();
await page.getByText('It is in line once more').waitFor();
await ask('replayed');

// All that a bot refused goes back at once, and the page says before how many that are.
await ask('poison');
await page.goto(`${base}/parked`);
await page.locator('summary', { hasText: 'Redrive 3 of shop' }).click();
await page.getByText('3 items of shop go back in line').waitFor();
await page.locator('#bulk button.primary').first().click();
await page.getByText('3 items are back in line.').waitFor();
await page.getByText('Nothing waits for you').waitFor();

// hapax ends, however it ends, and comes back: so does the page, with what came meanwhile.
await page.goto(`${base}/events`);
await mark(page);
for (const [how, from] of [['kill', '5511900000001'], ['stop', '5511900000002']]) {
  away.now = true;
  await ask(how);
  await page.locator('#live-state:not([hidden])').waitFor();
  await ask(`start ${from}`);
  await page.locator('#live-state[hidden]').waitFor({ state: 'attached' });
  await page.getByText(from).first().waitFor();
  away.now = false;
}
await stayed(page, 'a restart');

// What could not be sent is still written there, and is sent once.
await page.goto(chat);
await page.fill(box, 'while it was away');
away.now = true;
await ask('kill');
const refused = page.waitForEvent('requestfailed', (request) => request.method() === 'POST');
await page.click(button, { noWaitAfter: true });
await refused;
await ask('start 5511900000003');
await page.goBack();
await page.locator(box).waitFor();
expect(await page.inputValue(box) === 'while it was away', `the box has: ${await page.inputValue(box)}`);
await page.click(button);
await page.getByText('while it was away').first().waitFor();
away.now = false;
await end();
