import { HapaxError, Problem, Unreachable, problem } from './errors.js';

export const DEFAULT_LEASE = '60s';
/** Longest time that one request waits; longer waits are several requests. */
export const WAIT_MAX_S = 30;
const TRIES = 5;
const FIRST_PAUSE_S = 0.1;
const PAUSE_MAX_S = 5;
/** How work ended is told for as long as its lease lasts, and no longer than this. */
const TOLD_MAX_S = 60;
const UNITS = { ms: 0.001, s: 1, m: 60, h: 3600, d: 86400 };

/** Reads `"90s"`, `"5m"`, `"1h"`, `"7d"`, `"250ms"` or a number of seconds. */
export function seconds(duration) {
  if (typeof duration === 'number' && Number.isFinite(duration)) return duration;
  const found = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)$/.exec(String(duration).trim());
  if (!found) throw new TypeError(`${duration} is no duration; write "90s", "5m" or a number of seconds`);
  return Number(found[1]) * UNITS[found[2]];
}

/** Resolves after a time, or at once when the signal is aborted. Keeps no process alive when `unref` is set. */
export function pause(s, { signal, unref = false } = {}) {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', end);
      resolve();
    };
    const timer = setTimeout(end, s * 1000);
    if (unref) timer.unref();
    signal?.addEventListener('abort', end);
  });
}

/** One running hapax: its address, the token, and how it is asked. */
export class Wire {
  constructor({ url, token, timeout = '30s' } = {}) {
    const address = url ?? process.env.HAPAX_SERVER ?? 'http://127.0.0.1:4272';
    this.base = (address.includes('://') ? address : `http://${address}`).replace(/\/+$/, '');
    new URL(this.base);
    this.token = token ?? process.env.HAPAX_TOKEN ?? process.env.HAPAX_ADMIN_TOKEN;
    this.timeoutS = seconds(timeout);
  }

  async post(path, body, { wait = 0, signal } = {}) {
    const headers = { 'content-type': 'application/json', accept: 'application/json', 'user-agent': 'hapax-node/0.1' };
    if (this.token) headers.authorization = `Bearer ${this.token}`;
    if (wait >= 1) headers.prefer = `wait=${Math.floor(wait)}`;
    const cut = new AbortController();
    const timer = setTimeout(() => cut.abort(), (this.timeoutS + wait) * 1000);
    const onAbort = () => cut.abort();
    signal?.addEventListener('abort', onAbort, { once: true });
    if (signal?.aborted) cut.abort();
    try {
      const response = await fetch(this.base + path, { method: 'POST', headers, body: JSON.stringify(body), signal: cut.signal });
      const text = await response.text();
      const value = parse(text);
      if (response.ok) return value ?? {};
      throw problem(response.status, value, response.headers.get('retry-after'));
    } catch (error) {
      if (error instanceof HapaxError) throw error;
      throw new Unreachable(`hapax at ${this.base} did not answer: ${error?.cause?.message ?? error}`, { cause: error });
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener('abort', onAbort);
    }
  }

  /** For requests that change nothing more when they are made twice; those that say how work ended, for long. */
  async postRepeatable(path, body, forS = 0) {
    const until = Date.now() + Math.min(forS, TOLD_MAX_S) * 1000;
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await this.post(path, body);
      } catch (error) {
        const passing = error instanceof Unreachable || (error instanceof Problem && [429, 502, 503, 504].includes(error.status));
        if (!passing || (attempt >= TRIES && Date.now() >= until)) throw error;
        await pause(Math.min(error.retryAfter || FIRST_PAUSE_S * 2 ** (attempt - 1), PAUSE_MAX_S));
      }
    }
  }
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
