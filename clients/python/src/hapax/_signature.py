"""Whether a request comes from hapax: the Standard Webhooks headers that ``sign_with`` of a channel adds."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import time
from typing import Mapping, Sequence

from ._errors import BadSignature


def verify(
    body: bytes | str,
    headers: Mapping[str, str],
    secret: str | Sequence[str],
    *,
    tolerance: float = 300.0,
    now: float | None = None,
) -> str:
    """Checks a delivered request and returns its id (``webhook-id``), which is the same at every attempt.

    ``body`` is the raw body, before anybody parsed it. Of several secrets (during a rotation) one has to fit. Requests
    signed more than ``tolerance`` seconds ago, or ahead, are refused.
    """
    found = {name.lower(): value for name, value in headers.items()}
    try:
        event_id, signed_at = found["webhook-id"], found["webhook-timestamp"]
        signatures = found["webhook-signature"].split()
    except KeyError as missing:
        raise BadSignature(f"the header {missing.args[0]} is missing") from None
    if not (signed_at.isascii() and signed_at.isdigit() and len(signed_at) < 16):
        raise BadSignature("the header webhook-timestamp is no number")
    if abs((time.time() if now is None else now) - int(signed_at)) > tolerance:
        raise BadSignature("the request was signed too long ago, or one of the clocks is wrong")
    raw = body.encode() if isinstance(body, str) else bytes(body)
    signed = f"{event_id}.{signed_at}.".encode() + raw
    secrets = [secret] if isinstance(secret, str) else list(secret)
    for one in secrets:
        mac = hmac.new(_key_of(one), signed, hashlib.sha256).digest()
        expected = b"v1," + base64.b64encode(mac)
        if any(hmac.compare_digest(expected, given.encode()) for given in signatures):
            return event_id
    raise BadSignature("no signature fits")


def _key_of(secret: str) -> bytes:
    """A secret that starts with ``whsec_`` holds its key in base64; any other is the key."""
    if secret.startswith("whsec_"):
        try:
            return base64.b64decode(secret[len("whsec_") :], validate=True)
        except binascii.Error:
            pass
    return secret.encode()
