"""Run a job once, whatever the number of callers, retries and crashes.

    from hapax import Hapax

    hapax = Hapax("http://127.0.0.1:4272", token="...")
    receipt = hapax.once("order-4711", lambda: charge(order), scope="payments", on_abandoned="hold")

The second caller of a key gets the stored result. A job that raises releases its key, so the next caller runs it again.
A process that dies leaves the key abandoned: after its lease the next caller takes over, or, with ``on_abandoned="hold"``,
nobody does until a person has looked.
"""

from ._aio import AsyncClaim, AsyncHapax
from ._client import Claim, Hapax
from ._errors import (
    BadSignature,
    ClaimHeld,
    ClaimInProgress,
    ClaimLost,
    FingerprintMismatch,
    HapaxError,
    Problem,
    ResultNotKept,
    Unreachable,
)
from ._events import AsyncEvent, Event
from ._signature import verify

__all__ = [
    "AsyncClaim",
    "AsyncEvent",
    "AsyncHapax",
    "BadSignature",
    "Claim",
    "ClaimHeld",
    "ClaimInProgress",
    "ClaimLost",
    "Event",
    "FingerprintMismatch",
    "Hapax",
    "HapaxError",
    "Problem",
    "ResultNotKept",
    "Unreachable",
    "verify",
]
