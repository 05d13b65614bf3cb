import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once as emitted } from 'node:events';
import { createServer } from 'node:http';
import { beforeEach, describe, test } from 'node:test';

import { ClaimHeld, ClaimInProgress, ClaimLost, FingerprintMismatch } from '../src/index.js';
import { Hapax, Problem, ResultNotKept, Unreachable } from '../src/index.js';
import { seconds } from '../src/wire.js';
import { SERVER, eventually, needsServer, newKey, stored } from './rig.js';

/** A process that claims a key and dies over it. */
const CRASHES = `
import { Hapax } from './src/index.js';
const [key, onAbandoned] = process.argv.slice(1);
await new Hapax().once(key, () => process.exit(9), { lease: 0.3, onAbandoned });
`;

async function crash(key, onAbandoned) {
  const cwd = new URL('..', import.meta.url);
  const child = spawn(process.execPath, ['--input-type=module', '-e', CRASHES, key, onAbandoned], { cwd, stdio: 'inherit' });
  const [code] = await emitted(child, 'exit');
  assert.equal(code, 9);
}

describe('claims', needsServer, () => {
  const hapax = new Hapax(SERVER);
  let runs = 0;
  const job = () => ({ run: (runs += 1), text: 'naïve ☕' });
  beforeEach(() => (runs = 0));

  test('a job runs once and its result is replayed', async () => {
    const key = newKey();
    const results = [await hapax.once(key, job), await hapax.once(key, job)];
    assert.deepEqual(results, [{ run: 1, text: 'naïve ☕' }, { run: 1, text: 'naïve ☕' }]);
    assert.equal(runs, 1);
  });

  test('an error releases and is thrown', async () => {
    const key = newKey();
    await assert.rejects(hapax.once(key, () => Promise.reject(new RangeError('no such order'))), RangeError);
    assert.equal((await hapax.once(key, job)).run, 1);
  });

  test('of many callers one runs and all get its result', async () => {
    const key = newKey();
    const results = await Promise.all(Array.from({ length: 20 }, () => hapax.once(key, job, { wait: '20s' })));
    assert.equal(runs, 1);
    assert.ok(results.every((result) => result.run === 1));
  });

  test('a key under way is refused', async () => {
    const key = newKey();
    const claim = await hapax.claim(key);
    const refused = await hapax.once(key, job).catch((error) => error);
    assert.ok(refused instanceof ClaimInProgress);
    assert.deepEqual([refused.status, refused.code, refused.name], [409, 'claim_in_progress', 'ClaimInProgress']);
    await claim.release();
  });

  test('another fingerprint is refused', async () => {
    const key = newKey();
    await hapax.once(key, job, { fingerprint: '10 EUR' });
    await assert.rejects(hapax.once(key, job, { fingerprint: '20 EUR' }), FingerprintMismatch);
  });

  test('the heartbeat extends', async () => {
    const key = newKey();
    await hapax.once(
      key,
      async () => {
        const first = (await stored(key)).lease_until;
        await eventually(async () => (await stored(key)).lease_until > first);
      },
      { lease: '1s' },
    );
    assert.equal((await stored(key)).state, 'completed');
  });

  test('a crash leaves the key abandoned and the next takes over', async () => {
    const key = newKey();
    await crash(key, 'takeover');
    const claim = await hapax.claim(key, { wait: '20s' });
    assert.ok(claim.abandoned);
    await claim.complete('done');
    assert.equal(await hapax.once(key, job), 'done');
  });

  test('in doubt nothing is done twice', async () => {
    const key = newKey();
    await crash(key, 'hold');
    await assert.rejects(hapax.once(key, job, { wait: '20s' }), ClaimHeld);
    assert.equal(runs, 0);
  });

  test('the old holder is refused', async () => {
    const key = newKey();
    const old = await hapax.claim(key, { lease: 0.2, heartbeat: false });
    const taken = await hapax.claim(key, { wait: '20s' });
    assert.ok(taken.fence > old.fence);
    await assert.rejects(old.complete('late'), ClaimLost);
    await assert.rejects(old.extend(), ClaimLost);
    await assert.rejects(old.release(), ClaimLost);
    await taken.release();
  });

  test('a job learns that its claim is lost', async () => {
    const key = newKey();
    let aborted = false;
    const running = hapax.once(
      key,
      async (claim) => {
        const busy = setTimeout(() => {}, 30_000);
        claim.signal.addEventListener('abort', () => (clearTimeout(busy), (aborted = true)));
        // Whoever has its token may give it up.
        const headers = { authorization: `Bearer ${process.env.HAPAX_TOKEN}`, 'content-type': 'application/json' };
        const body = JSON.stringify({ key, token: claim.token });
        const answer = await fetch(`${SERVER}/v1/claims/release`, { method: 'POST', headers, body });
        assert.equal(answer.status, 200);
        await new Promise(() => {});
      },
      { lease: '900ms' },
    );
    await assert.rejects(running, ClaimLost);
    assert.ok(aborted);
  });

  test('a function is wrapped with a key of its arguments', async () => {
    const order = newKey();
    const ship = hapax.idempotent((id, part) => `${id}/${part}`, (id, part) => job().run * 10 + part);
    assert.deepEqual([await ship(order, 1), await ship(order, 1), await ship(order, 2)], [11, 11, 22]);
  });

  test('a result that cannot be stored runs nothing again', async () => {
    for (const result of [10n, 'x'.repeat(3 << 20)]) {
      const key = newKey();
      await assert.rejects(hapax.once(key, () => result), ResultNotKept);
      assert.equal((await hapax.once(key, job)) ?? null, null);
    }
    assert.equal(runs, 0);
  });

  test('bad input is a problem that says what to change', async () => {
    for (const [key, options] of [['', {}], ['k'.repeat(300), {}], [newKey(), { ttl: 0 }], [newKey(), { ttl: '36500d' }]]) {
      const refused = await hapax.claim(key, options).catch((error) => error);
      assert.ok(refused instanceof Problem && [400, 422].includes(refused.status), String(refused));
      assert.ok(refused.message);
    }
    await assert.rejects(new Hapax({ url: SERVER, token: 'wrong' }).claim(newKey()), { status: 401 });
  });
});

describe('without a server', () => {
  test('a job that is done is told until hapax is back', async () => {
    let completions = 0;
    const server = createServer((request, response) => {
      const claims = request.url === '/v1/claims';
      if (!claims) completions += 1;
      const status = claims ? 201 : completions > 20 ? 200 : 503;
      response.writeHead(status, { 'content-type': 'application/json', 'retry-after': '0.01' });
      response.end(JSON.stringify(claims ? { status: 'claimed', token: 't', fence: 1 } : {}));
    });
    await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
    try {
      assert.equal(await new Hapax(`http://127.0.0.1:${server.address().port}`).once('k', () => 1), 1);
      assert.equal(completions, 21);
    } finally {
      server.closeAllConnections?.();
      server.close();
    }
  });

  test('nobody there', async () => {
    await assert.rejects(new Hapax('http://127.0.0.1:1').claim('k'), Unreachable);
  });

  test('durations', () => {
    assert.deepEqual(['90s', '5m', '1h', '7d', '250ms', 3].map(seconds), [90, 300, 3600, 604800, 0.25, 3]);
    for (const bad of ['', '5', 'm', '1w', '-1s', NaN, undefined]) assert.throws(() => seconds(bad), TypeError);
  });
});
