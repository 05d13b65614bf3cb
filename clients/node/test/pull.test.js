import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import { Hapax, Problem } from '../src/index.js';
import { SERVER } from './rig.js';

const CHANNEL = process.env.HAPAX_PULL_CHANNEL;

/** The test's hapax has six messages waiting, each of a person of its own. */
describe('pull', { skip: SERVER && CHANNEL ? false : 'no channel to pull from: HAPAX_PULL_CHANNEL names none' }, () => {
  const hapax = new Hapax(SERVER);

  test('events come until they are done', async () => {
    const ids = [];
    for await (const event of hapax.pull(CHANNEL, { max: 2, wait: 0, forever: false })) {
      assert.equal(event.attempt, 1);
      assert.ok(event.json());
      ids.push(event.eventId);
      if (ids.length === 3) {
        await event.done();
        break;
      }
    }
    const leave = async () => {
      for await (const event of hapax.pull(CHANNEL, { max: 2, wait: 0, forever: false })) {
        assert.ok(!ids.includes(event.eventId));
        await event.retry({ after: 0, why: 'not now' });
        throw new RangeError();
      }
    };
    await assert.rejects(leave(), RangeError);
    const attempts = [];
    for await (const event of hapax.pull(CHANNEL, { max: 10, wait: '2s', forever: false })) {
      assert.ok(!ids.includes(event.eventId));
      assert.ok(event.headers['hapax-event-id']);
      attempts.push(event.attempt);
    }
    assert.equal(attempts.length, 3);
    assert.ok(attempts.includes(2));
  });

  test('a stopped loop ends', async () => {
    const stop = new AbortController();
    stop.abort();
    for await (const _ of hapax.pull(CHANNEL, { signal: stop.signal })) assert.fail('it goes on');
  });

  test('a channel that is not there', async () => {
    await assert.rejects(hapax.pull('no-such-channel', { wait: 0 }).next(), Problem);
  });
});
