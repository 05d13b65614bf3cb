/** Run a job once, whatever the number of callers, retries and crashes. Types and their words are in `index.d.ts`. */

export { Hapax, Claim } from './client.js';
export { Event } from './events.js';
export { verify } from './signature.js';
export {
  BadSignature,
  ClaimHeld,
  ClaimInProgress,
  ClaimLost,
  FingerprintMismatch,
  HapaxError,
  Problem,
  ResultNotKept,
  Unreachable,
} from './errors.js';
