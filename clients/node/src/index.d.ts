/** `"90s"`, `"5m"`, `"1h"`, `"7d"`, `"250ms"`, or a number of seconds. */
export type Duration = string | number;

export interface HapaxOptions {
  /** Where hapax is; by default `HAPAX_SERVER`, or `http://127.0.0.1:4272`. */
  url?: string;
  /** A token of scope `work`; by default `HAPAX_TOKEN`. */
  token?: string;
  /** How long an answer may take; by default `"30s"`. */
  timeout?: Duration;
}

export interface ClaimOptions {
  /** The family of jobs that the key belongs to. */
  scope?: string;
  /** How long a completed key is remembered. */
  ttl?: Duration;
  /** How long a crash keeps others waiting; extended in the background while the claim is open. By default `"60s"`. */
  lease?: Duration;
  /** A hash of what the job is about; the same key with another one is refused. */
  fingerprint?: string;
  /** What becomes of the key when its holder dies; `"hold"` waits for a person. By default `"takeover"`. */
  onAbandoned?: 'takeover' | 'hold';
  /** How long to wait for another holder; by default not at all. */
  wait?: Duration;
  /** False: the caller extends the lease itself. */
  heartbeat?: boolean;
}

export interface OnceOptions extends ClaimOptions {
  /** How long the completed key is remembered, in place of `ttl`. */
  keep?: Duration;
}

/** A running hapax. */
export class Hapax {
  constructor(options?: string | HapaxOptions);

  /**
   * Runs `job` unless it was done before, and returns its result, which is stored as JSON.
   *
   * Throws what the job throws, after the key was released; `ClaimInProgress` when another caller is still at work after
   * `wait`; `ClaimLost` when another has taken over meanwhile, which also aborts `claim.signal`. A process that dies leaves
   * the key abandoned.
   */
  once<T>(key: string, job: (claim: Claim) => T | Promise<T>, options?: OnceOptions): Promise<T>;

  /** Wraps a function so that it runs once per key, which is made of its arguments. */
  idempotent<A extends unknown[], T>(
    keyOf: (...args: A) => string,
    job: (...args: A) => T | Promise<T>,
    options?: OnceOptions,
  ): (...args: A) => Promise<T>;

  /** Claims a key, or finds it `completed`. Without an end by the caller it is abandoned. */
  claim(key: string, options?: ClaimOptions): Promise<Claim>;

  /**
   * Yields the events of a channel with `mode = "pull"`, one after the other.
   *
   * Asking for the next event says that the last one is done, unless it was settled otherwise. A loop that is left by an
   * error settles nothing: the event comes again after its lease. With `forever: false` it ends when nothing is waiting.
   */
  pull(
    channel: string,
    options?: { max?: number; wait?: Duration; forever?: boolean; signal?: AbortSignal },
  ): AsyncGenerator<Event, void, void>;
}

/** A key that this caller holds, or one that was `completed` before. */
export class Claim {
  private constructor();
  readonly key: string;
  readonly scope: string | undefined;
  /** True when the job was done before; `result` is its result. */
  readonly completed: boolean;
  readonly result: any;
  readonly token: string;
  /** Grows at every claim of the key: store it with your own writes to refuse a late one. */
  readonly fence: number;
  /** True when the last holder died without completing: part of the job may have happened. */
  readonly abandoned: boolean;
  /** True once another caller has taken over. */
  readonly lost: boolean;
  /** Aborted when another caller has taken over: hand it to `fetch` and the like. */
  readonly signal: AbortSignal;

  /** Ends the claim: later callers get `result`. */
  complete(result?: unknown, options?: { keep?: Duration }): Promise<void>;
  /** Moves the end of the lease; throws `ClaimLost` when the key is another's. */
  extend(lease?: Duration): Promise<void>;
  /** Gives the key back: the next caller runs the job. */
  release(): Promise<void>;
  /** Releases where another error is on its way; what cannot be released is abandoned. */
  releaseQuietly(): Promise<void>;
  /** Ends the heartbeat and nothing else, as a crash would. */
  abandon(): void;
  /** Runs a job until it ends or the claim is lost; ends nothing. */
  run<T>(job: (claim: Claim) => T | Promise<T>): Promise<T>;
}

/** An event to work on. It is settled once. */
export class Event {
  private constructor();
  /** All fields as hapax sent them. */
  readonly raw: Record<string, unknown>;
  /** The same at every attempt: the key for what the handler does elsewhere. */
  readonly eventId: string;
  readonly attempt: number;
  readonly fence: number;
  /** The handle of this attempt. */
  readonly lease: string;
  readonly leaseMs: number;
  readonly thread: string | undefined;
  /** Those that a target would get, names in small letters. */
  readonly headers: Record<string, string>;
  /** The body that a target would get; bytes where it is no text. */
  readonly body: string | Uint8Array;
  readonly settled: boolean;
  /** True once hapax said that the lease is another's. */
  readonly lost: boolean;

  /** The body, parsed. */
  json(): any;
  /** It is done; `replies` are sent once, with the completion. */
  done(options?: { replies?: unknown[] }): Promise<void>;
  /** It failed and comes again, after `after` or the channel's backoff. */
  retry(options?: { after?: Duration; why?: string }): Promise<void>;
  /** It cannot be handled: a person has to look. */
  park(why?: string): Promise<void>;
  /** It was not begun: another worker gets it at once. */
  handBack(): Promise<void>;
}

type HeadersLike = { get(name: string): string | null } | Record<string, string | string[] | undefined>;

/**
 * Checks the Standard Webhooks headers that `sign_with` of a channel adds, and returns the event's id, which is the same at
 * every attempt. `body` is the raw body, before anything parsed it. Throws `BadSignature`.
 */
export function verify(
  body: string | Uint8Array,
  headers: HeadersLike,
  secret: string | string[],
  options?: { tolerance?: number; now?: number },
): string;

/** The root of all errors of this package. */
export class HapaxError extends Error {}
/** A request that was not signed by hapax with one of the secrets, or too long ago. */
export class BadSignature extends HapaxError {}
/** hapax did not answer. Whether it has heard the request is not known. */
export class Unreachable extends HapaxError {}
/** The job ran and its key is completed, but its result could not be stored: later callers get `undefined`. */
export class ResultNotKept extends HapaxError {}
/** hapax said no. `code` is stable and meant for programs, the message for people. */
export class Problem extends HapaxError {
  readonly status: number;
  readonly code: string;
  readonly retryAfter: number | undefined;
}
/** Another caller holds the key and is at work. */
export class ClaimInProgress extends Problem {}
/** The last holder died and said `onAbandoned: "hold"`: a person has to release the key. */
export class ClaimHeld extends Problem {}
/** Another caller has taken over: what this one did afterwards does not count. */
export class ClaimLost extends Problem {}
/** The key was used before, with another fingerprint. */
export class FingerprintMismatch extends Problem {}
