"""Requests and answers as they are on the wire, for both clients. No I/O."""

from __future__ import annotations

import http.client
import io
import json
import os
import re
import ssl
import time
from dataclasses import dataclass
from typing import Any, Union
from urllib.parse import urlsplit

from ._errors import HapaxError, Unreachable, problem

Duration = Union[str, int, float]

DEFAULT_LEASE: Duration = "60s"
ANSWER_MAX_BYTES = 64 << 20
#: Longest time that one request waits for a key; longer waits are several requests.
WAIT_MAX_S = 30.0
#: Tries of a request that may be repeated, at least, and the pauses before the second and between the last.
TRIES = 5
FIRST_PAUSE_S = 0.1
PAUSE_MAX_S = 5.0
#: How work ended is told for as long as its lease lasts, and no longer than this.
TOLD_MAX_S = 60.0

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(duration: Duration) -> float:
    """Reads ``"90s"``, ``"5m"``, ``"1h"``, ``"7d"``, ``"250ms"`` or a number of seconds."""
    if isinstance(duration, (int, float)) and not isinstance(duration, bool):
        return float(duration)
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", str(duration).strip())
    if not found:
        raise ValueError(f"{duration!r} is no duration; write '90s', '5m' or a number of seconds")
    return float(found[1]) * _UNITS[found[2]]


@dataclass(frozen=True)
class Server:
    """Where hapax is, and as whom we call it."""

    secure: bool
    host: str
    port: int
    prefix: str
    token: str | None
    tls: ssl.SSLContext | None

    @staticmethod
    def read(url: str | None, token: str | None, tls: ssl.SSLContext | None) -> Server:
        url = url or os.environ.get("HAPAX_SERVER") or "http://127.0.0.1:4272"
        token = token or os.environ.get("HAPAX_TOKEN") or os.environ.get("HAPAX_ADMIN_TOKEN")
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is no address of hapax; write 'http://127.0.0.1:4272'")
        secure = parts.scheme == "https"
        tls = tls or (ssl.create_default_context() if secure else None)
        port = parts.port or (443 if secure else 80)
        return Server(secure, parts.hostname, port, parts.path.rstrip("/"), token, tls)

    def headers(self, body: bytes, wait: float) -> dict[str, str]:
        host = f"[{self.host}]" if ":" in self.host else self.host
        headers = {
            "Host": f"{host}:{self.port}",
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            "Accept": "application/json",
            "User-Agent": "hapax-python/0.1",
            "Connection": "close",
        }
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        if wait >= 1:
            headers["Prefer"] = f"wait={int(wait)}"
        return headers


def encode(body: dict[str, Any]) -> bytes:
    """The body of a request, without what was not given."""
    given = {name: value for name, value in body.items() if value is not None}
    return json.dumps(given, separators=(",", ":")).encode()


def read_answer(status: int, retry_after: str | None, body: bytes) -> dict[str, Any]:
    """Returns the JSON of a success, raises what a problem stands for."""
    try:
        value = json.loads(body) if body else {}
    except ValueError:
        value = {}
    if not isinstance(value, dict):
        value = {}
    if 200 <= status < 300:
        return value
    code = str(value.get("code") or "")
    detail = str(value.get("detail") or value.get("title") or f"hapax answered {status}")
    try:
        after = float(retry_after) if retry_after else None
    except ValueError:
        after = None
    raise problem(status, code, detail, after)


class Repeats:
    """How often a request is made that changes nothing when it is repeated: some times, and for some seconds."""

    def __init__(self, for_s: float) -> None:
        self._until = time.monotonic() + min(for_s, TOLD_MAX_S)
        self._made = 0

    def pause_s(self, error: HapaxError) -> float:
        """How long to wait before the next try; raises ``error`` when none is worth it."""
        self._made += 1
        passing = isinstance(error, Unreachable) or getattr(error, "status", 0) in (429, 502, 503, 504)
        if not passing or (self._made >= TRIES and time.monotonic() >= self._until):
            raise error
        asked: float | None = getattr(error, "retry_after", None)
        return min(asked or FIRST_PAUSE_S * 2 ** min(self._made - 1, 10), PAUSE_MAX_S)


class _Bytes:
    """What ``HTTPResponse`` asks of a socket."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    def makefile(self, *_: Any, **__: Any) -> io.BytesIO:
        return io.BytesIO(self._raw)


def parse_response(raw: bytes) -> tuple[int, str | None, bytes]:
    """Takes a whole HTTP answer apart, with the parser of the standard library."""
    response = http.client.HTTPResponse(_Bytes(raw))  # type: ignore[arg-type]
    try:
        response.begin()
        return response.status, response.getheader("Retry-After"), response.read()
    except (http.client.HTTPException, OSError) as error:
        raise Unreachable(f"the answer of hapax was cut off: {error!r}") from error


@dataclass(frozen=True)
class Ask:
    """What a claim is asked for with; see ``Hapax.claim``."""

    key: str
    scope: str | None
    ttl: Duration | None
    lease: Duration
    fingerprint: str | None
    on_abandoned: str | None
    wait: Duration

    def body(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "scope": self.scope,
            "ttl": self.ttl,
            "lease": self.lease,
            "fingerprint": self.fingerprint,
            "on_abandoned": self.on_abandoned,
        }


@dataclass(frozen=True)
class ClaimFacts:
    """What hapax told of a claim."""

    key: str
    scope: str | None
    #: True when the job was done before: there is nothing to do, and ``result`` is its result.
    completed: bool
    result: Any
    #: Who holds it: goes with every later call.
    token: str
    #: Grows at every claim: store it with your own writes to refuse a late one.
    fence: int
    #: True when the last holder died without completing: part of the job may have happened.
    abandoned: bool
    lease_s: float

    @staticmethod
    def read(ask: Ask, answer: dict[str, Any]) -> ClaimFacts:
        return ClaimFacts(
            key=ask.key,
            scope=ask.scope,
            completed=answer.get("status") == "completed",
            result=answer.get("result"),
            token=str(answer.get("token") or ""),
            fence=int(answer.get("fence") or 0),
            abandoned=answer.get("previous") == "abandoned",
            lease_s=seconds(ask.lease),
        )

    def body(self, **more: Any) -> dict[str, Any]:
        return {"key": self.key, "scope": self.scope, "token": self.token, **more}
