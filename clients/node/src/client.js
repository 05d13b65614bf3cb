import { ClaimInProgress, ClaimLost, HapaxError, Problem, ResultNotKept } from './errors.js';
import { pullEvents } from './events.js';
import { DEFAULT_LEASE, WAIT_MAX_S, Wire, pause, seconds } from './wire.js';

export class Hapax {
  #wire;

  constructor(options) {
    this.#wire = new Wire(typeof options === 'string' ? { url: options } : options);
  }

  async once(key, job, options = {}) {
    const claim = await this.claim(key, options);
    if (claim.completed) return claim.result;
    let value;
    try {
      value = await claim.run(job);
    } catch (error) {
      // Who has taken over owns the key now.
      if (claim.lost) claim.abandon();
      else await claim.releaseQuietly();
      throw error;
    }
    await claim.complete(value, { keep: options.keep });
    return value;
  }

  /** Wraps a function so that it runs once per key, which is made of its arguments. */
  idempotent(keyOf, job, options = {}) {
    return (...args) => this.once(keyOf(...args), () => job(...args), options);
  }

  async claim(key, { scope, ttl, lease = DEFAULT_LEASE, fingerprint, onAbandoned, wait = 0, heartbeat = true } = {}) {
    const body = { key, scope, ttl, lease, fingerprint, on_abandoned: onAbandoned };
    const leaseS = seconds(lease);
    const until = Date.now() + seconds(wait) * 1000;
    for (;;) {
      const left = Math.max(0, until - Date.now()) / 1000;
      try {
        const answer = await this.#wire.post('/v1/claims', body, { wait: Math.min(left, WAIT_MAX_S) });
        return new Claim(this.#wire, { key, scope }, answer, leaseS, heartbeat);
      } catch (error) {
        const still = (until - Date.now()) / 1000;
        if (!(error instanceof ClaimInProgress) || still <= 0) throw error;
        await pause(Math.min(still, error.retryAfter || 0.2, 1));
      }
    }
  }

  /** Yields the events of a channel with `mode = "pull"`. */
  pull(channel, { max = 1, wait = '20s', forever = true, signal } = {}) {
    return pullEvents(this.#wire, channel, { max, wait, forever, signal });
  }
}

export class Claim {
  #wire;
  #name;
  #open;
  #over = new AbortController();
  #lost = new AbortController();
  #leaseS;

  constructor(wire, name, answer, leaseS, heartbeat) {
    this.#wire = wire;
    this.#leaseS = leaseS;
    this.key = name.key;
    this.scope = name.scope;
    this.completed = answer.status === 'completed';
    this.result = answer.result;
    this.token = answer.token ?? '';
    this.fence = answer.fence ?? 0;
    this.abandoned = answer.previous === 'abandoned';
    this.#name = { key: name.key, scope: name.scope, token: this.token };
    this.#open = !this.completed;
    if (this.#open && heartbeat) this.#beat(leaseS / 3);
  }

  get lost() {
    return this.#lost.signal.aborted;
  }

  /** Aborted when another caller has taken over. */
  get signal() {
    return this.#lost.signal;
  }

  async complete(result, { keep } = {}) {
    this.#stop();
    let why;
    let kept = result;
    try {
      JSON.stringify(result);
    } catch (error) {
      [why, kept] = [error, undefined];
    }
    try {
      await this.#wire.postRepeatable('/v1/claims/complete', { ...this.#name, result: kept, keep }, this.#leaseS);
    } catch (error) {
      const refused = error instanceof Problem && !(error instanceof ClaimLost) && [400, 413, 422].includes(error.status);
      if (kept === undefined || !refused) throw error;
      // Its job ran: it must not run again because its result is too large.
      await this.#wire.postRepeatable('/v1/claims/complete', { ...this.#name, keep }, this.#leaseS);
      why = error;
    }
    if (why) throw new ResultNotKept(`the job of ${this.key} ran, but its result was not stored: ${why.message}`, { cause: why });
  }

  async extend(lease) {
    await this.#wire.postRepeatable('/v1/claims/extend', { ...this.#name, lease });
  }

  async release() {
    this.#stop();
    await this.#wire.postRepeatable('/v1/claims/release', this.#name);
  }

  /** Releases where another error is on its way; what cannot be released is abandoned. */
  async releaseQuietly() {
    try {
      await this.release();
    } catch (error) {
      if (!(error instanceof HapaxError)) throw error;
    }
  }

  /** Ends the heartbeat and nothing else, as a crash would. */
  abandon() {
    this.#stop();
  }

  /** Runs a job until it ends or the claim is lost. */
  async run(job) {
    const lost = new Promise((_, reject) => {
      const tell = () => reject(new ClaimLost(409, 'claim_lost', `another caller has taken over ${this.key}`));
      this.signal.addEventListener('abort', tell, { once: true });
    });
    return Promise.race([(async () => job(this))(), lost]);
  }

  #stop() {
    this.#open = false;
    this.#over.abort();
  }

  async #beat(interval) {
    for (;;) {
      // It keeps no process alive: a program that ends leaves its claim abandoned.
      await pause(interval, { signal: this.#over.signal, unref: true });
      if (!this.#open) return;
      try {
        await this.#wire.post('/v1/claims/extend', { ...this.#name, lease: interval * 3 }, { signal: this.#over.signal });
      } catch (error) {
        if (error instanceof ClaimLost && this.#open) return this.#lost.abort();
        // The next beat tries again; until another takes over the claim is ours, late or not.
      }
    }
  }
}
