import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { BadSignature, verify } from '../src/index.js';

/** The example of the specification's own libraries. */
const SECRET = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';
const BODY = '{"test": 2432232314}';
const now = 1614265330;
const HEADERS = {
  'webhook-id': 'msg_p5jXN8AQM9LWM0D4loKWxJek',
  'webhook-timestamp': String(now),
  'webhook-signature': 'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=',
};

test('the published example passes', () => {
  assert.equal(verify(BODY, HEADERS, SECRET, { now }), HEADERS['webhook-id']);
  assert.equal(verify(Buffer.from(BODY), new Headers(HEADERS), ['another', SECRET], { now }), HEADERS['webhook-id']);
  const several = { ...HEADERS, 'webhook-signature': `v1a,xx v1,AAAA ${HEADERS['webhook-signature']}` };
  assert.equal(verify(BODY, several, SECRET, { now: now + 299 }), HEADERS['webhook-id']);
});

test('whatever was changed is refused', () => {
  for (const [body, headers, secret, at] of [
    [`${BODY} `, HEADERS, SECRET, now],
    [BODY, { ...HEADERS, 'webhook-id': 'msg_other' }, SECRET, now],
    [BODY, { ...HEADERS, 'webhook-timestamp': String(now + 1) }, SECRET, now],
    [BODY, { ...HEADERS, 'webhook-timestamp': 'soon' }, SECRET, now],
    [BODY, { ...HEADERS, 'webhook-signature': '' }, SECRET, now],
    [BODY, { 'webhook-id': 'x' }, SECRET, now],
    [BODY, HEADERS, 'whsec_AAAA', now],
    [BODY, HEADERS, [], now],
    [BODY, HEADERS, SECRET, now + 301],
    [BODY, HEADERS, SECRET, now - 301],
  ]) {
    assert.throws(() => verify(body, headers, secret, { now: at }), BadSignature);
  }
});

const delivered = process.env.HAPAX_DELIVERED;
test('what hapax delivers passes', { skip: delivered ? false : 'HAPAX_DELIVERED names no request' }, () => {
  const { id, headers, body, secret } = JSON.parse(readFileSync(delivered, 'utf8'));
  assert.equal(verify(body, headers, secret), id);
  assert.throws(() => verify(`${body} `, headers, secret), BadSignature);
});
