import { HapaxError, Problem } from './errors.js';
import { WAIT_MAX_S, pause, seconds } from './wire.js';

/** The lease of an item that does not tell its own. */
const LEASE_MS = 10_000;
/** The pause after a pull that failed, so that a hapax that restarts is waited for. */
const PAUSE_S = 1;
/** The lease is another's by now, which gets the event again. */
const LOST_STATUS = 409;

export class Event {
  #wire;

  constructor(wire, item) {
    this.#wire = wire;
    this.raw = item;
    this.eventId = item.event_id;
    this.attempt = item.attempt;
    this.fence = item.fence;
    this.lease = item.lease;
    this.leaseMs = item.lease_ms ?? LEASE_MS;
    this.thread = item.thread ?? undefined;
    this.headers = Object.fromEntries((item.headers ?? []).map(({ name, value }) => [name.toLowerCase(), value]));
    this.body = item.body_encoding === 'base64' ? Buffer.from(item.body, 'base64') : (item.body ?? '');
    this.settled = false;
    this.lost = false;
  }

  json() {
    return JSON.parse(this.body);
  }

  done({ replies } = {}) {
    return this.#settle({ outcome: 'done', replies });
  }

  retry({ after, why } = {}) {
    return this.#settle({ outcome: 'retry', after, why });
  }

  park(why) {
    return this.#settle({ outcome: 'park', why });
  }

  handBack() {
    return this.#settle({ outcome: 'hand_back' });
  }

  async #settle(settlement) {
    if (this.settled) return;
    await this.#wire.postRepeatable('/v1/settle', { lease: this.lease, ...settlement }, this.leaseMs / 1000);
    this.settled = true;
  }
}

function isRefused(error) {
  return error instanceof Problem && error.status < 500 && error.status !== 429;
}

export async function* pullEvents(wire, channel, { max, wait, forever, signal }) {
  const waitS = Math.min(seconds(wait), WAIT_MAX_S);
  while (!signal?.aborted) {
    let items;
    try {
      ({ items } = await wire.post('/v1/pull', { channel, max, wait: waitS }, { wait: waitS, signal }));
    } catch (error) {
      if (signal?.aborted) return;
      if (!(error instanceof HapaxError) || isRefused(error) || !forever) throw error;
      await pause(PAUSE_S, { signal });
      continue;
    }
    const events = (items ?? []).map((item) => new Event(wire, item));
    if (events.length > 0) yield* oneByOne(wire, events, signal);
    else if (!forever) return;
  }
}

async function* oneByOne(wire, events, signal) {
  const over = new AbortController();
  beat(wire, events, over.signal);
  let begun = 0;
  try {
    for (const event of events) {
      if (signal?.aborted) return;
      begun += 1;
      if (event.lost) continue;
      yield event;
      await doneUnlessLost(event);
    }
  } finally {
    over.abort();
    for (const event of events.slice(begun)) await event.handBack().catch(() => {});
  }
}

/** Asking for the next event says that the last one is done. */
async function doneUnlessLost(event) {
  try {
    if (!event.lost) await event.done();
  } catch (error) {
    if (!(error instanceof Problem) || error.status !== LOST_STATUS) throw error;
    event.lost = true;
  }
}

/** Extends leases three times before the first of them ends. */
async function beat(wire, events, over) {
  const intervalS = Math.min(...events.map((event) => event.leaseMs)) / 3000;
  for (;;) {
    await pause(intervalS, { signal: over, unref: true });
    if (over.aborted) return;
    for (const event of events.filter((one) => !one.settled && !one.lost)) {
      try {
        await wire.post('/v1/extend', { lease: event.lease }, { signal: over });
      } catch (error) {
        if (isRefused(error)) event.lost = true;
      }
    }
  }
}
