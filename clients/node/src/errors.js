export class HapaxError extends Error {
  constructor(message, options) {
    super(message, options);
    this.name = new.target.name;
  }
}

export class BadSignature extends HapaxError {}
export class Unreachable extends HapaxError {}
export class ResultNotKept extends HapaxError {}

export class Problem extends HapaxError {
  constructor(status, code, detail, retryAfter) {
    super(detail);
    this.status = status;
    this.code = code;
    this.retryAfter = retryAfter;
  }
}

export class ClaimInProgress extends Problem {}
export class ClaimHeld extends Problem {}
export class ClaimLost extends Problem {}
export class FingerprintMismatch extends Problem {}

const BY_CODE = {
  claim_in_progress: ClaimInProgress,
  claim_held: ClaimHeld,
  claim_lost: ClaimLost,
  fingerprint_mismatch: FingerprintMismatch,
};

/** The error that an answer stands for. */
export function problem(status, value, retryAfter) {
  const code = typeof value?.code === 'string' ? value.code : '';
  const detail = value?.detail ?? value?.title ?? `hapax answered ${status}`;
  const Kind = Object.hasOwn(BY_CODE, code) ? BY_CODE[code] : Problem;
  const seconds = Number(retryAfter);
  return new Kind(status, code, detail, retryAfter && Number.isFinite(seconds) ? seconds : undefined);
}
