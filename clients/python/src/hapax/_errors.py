"""What can go wrong, one class each."""

from __future__ import annotations


class HapaxError(Exception):
    """The root of all errors of this package."""


class BadSignature(HapaxError):
    """A request that was not signed by hapax with one of the secrets, or too long ago."""


class Unreachable(HapaxError):
    """hapax did not answer. Whether it has heard the request is not known."""


class ResultNotKept(HapaxError):
    """The job ran and its key is completed, but its result could not be stored: later callers get ``None``."""


class Problem(HapaxError):
    """hapax said no. ``code`` is stable and meant for programs, the message for people."""

    def __init__(self, status: int, code: str, detail: str, retry_after: float | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[object, ...]:
        # Job systems carry errors between processes.
        return type(self), (self.status, self.code, self.detail, self.retry_after)


class ClaimInProgress(Problem):
    """Another caller holds the key and is at work."""


class ClaimHeld(Problem):
    """The last holder died and said ``on_abandoned="hold"``: a person has to release the key."""


class ClaimLost(Problem):
    """The claim ran out and another caller has taken over: what this one did afterwards does not count."""


class FingerprintMismatch(Problem):
    """The key was used before, with another fingerprint."""


_BY_CODE = {
    "claim_in_progress": ClaimInProgress,
    "claim_held": ClaimHeld,
    "claim_lost": ClaimLost,
    "fingerprint_mismatch": FingerprintMismatch,
}


def problem(status: int, code: str, detail: str, retry_after: float | None) -> Problem:
    return _BY_CODE.get(code, Problem)(status, code, detail, retry_after)
