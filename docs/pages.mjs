// Takes the pictures of all pages into docs/images/pages, light and dark, on a desk and on a phone: `node docs/pages.mjs [HAPAX] [PAGE..]`. Starts
// a hapax of its own with a bot, phones and something to show. Needs Chromium and playwright-core, which tests/install-clients.sh puts into
// target/clients.
import { createHmac } from 'node:crypto';
import { spawn } from 'node:child_process';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const [hapax = new URL('../target/quick/hapax', import.meta.url).pathname, ...only] = process.argv.slice(2);
const require = createRequire(new URL('../target/clients/node/', import.meta.url));
const { chromium } = require('playwright-core');
const token = 'a-token-for-pictures-only', secret = 'a-secret-for-pictures-only', telegram = '7000001:pictures';
const folder = mkdtempSync(join(tmpdir(), 'hapax-pages-')), images = new URL('images/pages/', import.meta.url).pathname;
const soon = (ms) => new Promise((done) => setTimeout(done, ms));

async function serve(answer) {
  const server = createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    answer(request, Buffer.concat(chunks).toString(), response);
  });
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  return `http://127.0.0.1:${server.address().port}`;
}
const json = (response, status, body, type = 'application/json') => { response.writeHead(status, { 'content-type': type }); response.end(JSON.stringify(body)); };

// A bot that answers what it knows, and refuses what it does not.
const answers = { hours: 'We are open from 9 to 18, Saturdays until 14.', order: 'Order 4711 left our warehouse this morning.', size: 'The jacket comes in S to XL; M is in stock.' };
const bot = await serve(async (request, body, response) => {
  if (body.includes('refund')) return json(response, 422, { error: 'no skill for "refund"' });
  await soon(60 + body.length % 400);
  const found = Object.keys(answers).find((word) => body.includes(word));
  json(response, 200, { replies: found ? [{ text: answers[found] }] : [] }, 'application/vnd.hapax.replies+json');
});

// Phones that take messages, say so later, and sometimes say nothing at all.
let sent = 0, at = '';
const phones = await serve(async (request, body, response) => {
  if (body.includes('(the line is bad)')) return request.socket.destroy();
  if (request.url.startsWith('/bot')) return json(response, 200, { ok: true, result: { message_id: ++sent, date: 1, chat: { id: 77, type: 'private' } } });
  if (request.url.includes('700002')) return json(response, 401, { error: { message: 'Error validating access token', code: 190 } });
  const id = `wamid.out${++sent}`, { to } = JSON.parse(body);
  json(response, 200, { messages: [{ id }] });
  for (const status of ['delivered', 'read'].slice(0, 1 + sent % 2)) {
    await soon(300);
    await whatsapp({ statuses: [{ id, status, timestamp: `${Math.floor(Date.now() / 1000)}`, recipient_id: to }] });
  }
});

async function post(channel, body, headers) {
  const answer = await fetch(`${at}/in/${channel}`, { method: 'POST', headers: { 'content-type': 'application/json', ...headers }, body });
  if (!answer.ok) throw new Error(`${channel}: ${answer.status} ${await answer.text()}`);
}
function whatsapp(value, account = '700001') {
  const body = JSON.stringify({ object: 'whatsapp_business_account', entry: [{ id: '9', changes: [{ field: 'messages', value: {
    messaging_product: 'whatsapp', metadata: { display_phone_number: '15550001', phone_number_id: account }, ...value } }] }] });
  return post('shop', body, { 'x-hub-signature-256': `sha256=${createHmac('sha256', secret).update(body).digest('hex')}` });
}
let came = 0;
async function writes(from, text, copies = 1, account) {
  const message = { from, id: `wamid.in${++came}`, timestamp: `${Math.floor(Date.now() / 1000)}`, ...(text ? { type: 'text', text: { body: text } } : { type: 'image', image: { id: '7', mime_type: 'image/jpeg', sha256: 'x' } }) };
  for (let copy = 0; copy < copies; copy += 1) await whatsapp({ contacts: [{ profile: { name: 'Ana' }, wa_id: from }], messages: [message] }, account);
}
async function ask(path, body) {
  const answer = await fetch(`${at}${path}`, { method: body ? 'POST' : 'GET', headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' }, body: body && JSON.stringify(body) });
  return answer.json();
}
const says = (to, text, account = '700001') => ask('/v1/messages', { channel: 'shop', account, to, text });

writeFileSync(join(folder, 'hapax.toml'), `
listen = "127.0.0.1:0"
admin_token = "${token}"
store = "sqlite:${folder}/hapax.db"
write_config = true
[log]
filter = "off"
[defaults]
target = "${bot}"
[channel.shop]
provider = "whatsapp"
secret = "${secret}"
verify_token = "pictures"
token = "pictures"
api_base = "${phones}"
on_unknown = "hold"
[channel.helpbot]
provider = "telegram"
secret = "${secret}"
token = "${telegram}"
api_base = "${phones}"
[channel.pay]
provider = "stripe"
secret = "whsec_${secret}"
`);
const server = spawn(hapax, ['serve', '--json', '--config', join(folder, 'hapax.toml')], { stdio: ['ignore', 'pipe', 'inherit'] });
at = await new Promise((found) => {
  let said = '';
  server.on('exit', () => { if (!at) process.exit(1); });
  server.stdout.on('data', (part) => { said += part; const line = said.match(/"listen": "([^"]+)"/); if (line) found(line[1]); });
});

const ana = '5511988887777';
await writes(ana, 'Hi! Where is my order 4711?', 3);
await soon(700);
await writes(ana, 'Thank you! And what are your hours?', 1);
await writes('447700900123', 'Which size is left of the green jacket?', 2);
await writes('34600111222', 'I want a refund for order 4699, please');
await writes('34600111222', 'A refund! Hello?');
await writes('819012345678', null);
await writes('12025550147', 'Hello from our second number', 1, '700002');
for (let number = 0; number < 14; number += 1) await writes(`49151234${1000 + number}`, ['What are your hours?', 'order status?', 'Do you ship to Norway?', 'Is size M in stock?'][number % 4], 1 + number % 3);
for (let number = 1; number <= 3; number += 1) {
  const body = JSON.stringify({ update_id: number, message: { message_id: number, date: 1, chat: { id: 77, type: 'private' }, text: ['/start', 'hours?', 'thanks'][number - 1] } });
  await post('helpbot', body, { 'x-telegram-bot-api-secret-token': secret });
}
await ask('/v1/channels/pay/trigger', { kind: 'stripe.invoice' }).catch(() => {});
await soon(900);
await says(ana, 'You are welcome, Ana. Anything else?');
await says('447700900123', 'We have put one aside for you (the line is bad)');
for (let number = 0; number < 3; number += 1) await says('12025550147', `Your parcel ${number + 1} is on its way`, '700002');
for (const key of ['nightly-report', 'invoice-2026-11', 'newsletter-47']) await ask('/v1/claims', { key, scope: 'jobs', lease: '10m' });
const { token: claimed } = await ask('/v1/claims', { key: 'backup-2026-11-17', scope: 'jobs' });
await ask('/v1/claims/complete', { key: 'backup-2026-11-17', scope: 'jobs', token: claimed });
await ask('/v1/tokens', { name: 'shop-bot', scopes: ['send', 'work'], channels: ['shop'] });
await ask('/v1/tokens', { name: 'dashboard', scopes: ['read'] });
await soon(3_000);
await writes(ana, 'No, that was all. Bye!');
await soon(12_000);

const thread = `700001__${ana}`, story = (await ask('/v1/events?q=kind:message%20thread:' + thread)).events.at(-1).id;
const pages = { overview: '/', events: '/events', event: `/events/${story}`, threads: '/threads', thread: `/threads/${thread}`, outbox: '/outbox', parked: '/parked',
  claims: '/claims', accounts: '/accounts', channels: '/channels', channel: '/channels/shop', 'new-channel': '/new-channel', tokens: '/tokens', audit: '/audit',
  settings: '/settings', docs: '/docs', 'sign-in': '/sign-in' };
mkdirSync(images, { recursive: true });
const flags = ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking', '--disable-sync', '--hide-scrollbars'];
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM || '/usr/bin/chromium', args: flags });
for (const colorScheme of ['light', 'dark']) for (const [where, width, height] of [['desk', 1120, 680], ['phone', 360, 640]]) {
  const context = await browser.newContext({ colorScheme, viewport: { width, height } });
  const page = await context.newPage();
  const take = (name) => page.screenshot({ path: `${images}${name}-${where}-${colorScheme}.png` });
  const wanted = (name) => only.length === 0 || only.includes(name);
  await page.goto(`${at}/sign-in`);
  if (wanted('sign-in')) await take('sign-in');
  await page.fill('[name=token]', token);
  await page.click('button[type=submit]');
  await page.waitForURL(`${at}/`);
  for (const [name, path] of Object.entries(pages).filter(([name]) => name !== 'sign-in' && wanted(name))) {
    await page.goto(at + path);
    await take(name);
  }
  await context.close();
}
await browser.close();
server.kill('SIGTERM');
await new Promise((ended) => server.on('exit', ended));
rmSync(folder, { recursive: true });
process.exit(0);
