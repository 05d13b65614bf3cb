"""The client for programs without an event loop."""

from __future__ import annotations

import functools
import http.client
import inspect
import ssl
import threading
import time
from typing import Any, Callable, Iterator, Literal, ParamSpec, TypeVar, cast

from ._errors import ClaimInProgress, ClaimLost, HapaxError, Problem, ResultNotKept, Unreachable
from ._events import Event, pull_events
from ._wire import (
    ANSWER_MAX_BYTES,
    DEFAULT_LEASE,
    WAIT_MAX_S,
    Ask,
    ClaimFacts,
    Duration,
    Repeats,
    Server,
    encode,
    read_answer,
    seconds,
)

T = TypeVar("T")
P = ParamSpec("P")
OnAbandoned = Literal["takeover", "hold"]


class Hapax:
    """A running hapax. Threads may share one.

    Address and token come from ``HAPAX_SERVER`` and ``HAPAX_TOKEN`` where they are not given. The token needs the scope
    ``work``.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout: float = 30.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._server = Server.read(url, token, tls)
        self._timeout = timeout

    def once(
        self,
        key: str,
        job: Callable[[], T],
        *,
        scope: str | None = None,
        ttl: Duration | None = None,
        lease: Duration = DEFAULT_LEASE,
        fingerprint: str | None = None,
        on_abandoned: OnAbandoned | None = None,
        wait: Duration = 0,
        keep: Duration | None = None,
    ) -> T:
        """Runs ``job`` unless it was done before, and returns its result, which is stored as JSON.

        Raises what the job raises, after the key was released. ``ClaimInProgress`` when another caller is still at work
        after ``wait``. An exit, an interrupt or a crash leaves the key abandoned.
        """
        claim = self.claim(
            key, scope=scope, ttl=ttl, lease=lease, fingerprint=fingerprint, on_abandoned=on_abandoned, wait=wait
        )
        if claim.completed:
            return cast(T, claim.result)
        try:
            value = job()
        except Exception:
            claim.release_quietly()
            raise
        except BaseException:
            claim.abandon()
            raise
        claim.complete(value, keep=keep)
        return value

    def idempotent(
        self, key: str | Callable[P, str], **options: Any
    ) -> Callable[[Callable[P, T]], Callable[P, T]]:
        """Decorates a function that is to run once per key; the options are those of ``once``.

        ``key`` is made of the arguments: a function of them, or a text such as ``"order-{order_id}"``.
        """

        def decorate(function: Callable[P, T]) -> Callable[P, T]:
            key_of = key_maker(key, function)

            @functools.wraps(function)
            def run(*args: P.args, **kwargs: P.kwargs) -> T:
                return self.once(key_of(*args, **kwargs), lambda: function(*args, **kwargs), **options)

            return run

        return decorate

    def claim(
        self,
        key: str,
        *,
        scope: str | None = None,
        ttl: Duration | None = None,
        lease: Duration = DEFAULT_LEASE,
        fingerprint: str | None = None,
        on_abandoned: OnAbandoned | None = None,
        wait: Duration = 0,
        heartbeat: bool = True,
    ) -> Claim:
        """Claims a key, or finds it ``completed``. Without an end by the caller it is abandoned.

        - ``scope``: the family of jobs the key belongs to.
        - ``lease``: how long a crash keeps others waiting; a thread extends it while the claim is open.
        - ``ttl``: how long a completed key is remembered.
        - ``fingerprint``: a hash of what the job is about; the same key with another one is refused.
        - ``on_abandoned``: what becomes of the key when its holder dies; ``"hold"`` waits for a person.
        - ``wait``: how long to wait for another holder.
        """
        ask = Ask(key, scope, ttl, lease, fingerprint, on_abandoned, wait)
        interval = seconds(lease) / 3
        until = time.monotonic() + seconds(wait)
        while True:
            left = max(0.0, until - time.monotonic())
            try:
                facts = ClaimFacts.read(ask, self._post("/v1/claims", ask.body(), wait=min(left, WAIT_MAX_S)))
            except ClaimInProgress as busy:
                left = until - time.monotonic()
                if left <= 0:
                    raise
                # Less than a second is left or hapax waits no longer: it is asked again, not at once.
                time.sleep(min(left, busy.retry_after or 0.2, 1.0))
                continue
            return Claim(self, facts, interval if heartbeat and not facts.completed else None)

    def pull(self, channel: str, *, max: int = 1, wait: Duration = "20s", forever: bool = True) -> Iterator[Event]:
        """Yields the events of a channel with ``mode = "pull"``, one after the other.

        Asking for the next event says that the last one is done, unless it was settled otherwise (``event.retry()``,
        ``event.park()``). A loop that is left by an error settles nothing: the event comes again after its lease. With
        ``forever=False`` the loop ends when nothing is waiting.
        """
        return pull_events(self, channel, max, wait, forever)

    def _post(self, path: str, body: dict[str, Any], *, wait: float = 0.0) -> dict[str, Any]:
        server, raw = self._server, encode(body)
        timeout = self._timeout + wait
        connection = http.client.HTTPConnection(server.host, server.port, timeout=timeout)
        if server.secure:
            connection = http.client.HTTPSConnection(server.host, server.port, timeout=timeout, context=server.tls)
        try:
            connection.request("POST", server.prefix + path, body=raw, headers=server.headers(raw, wait))
            response = connection.getresponse()
            answer = response.read(ANSWER_MAX_BYTES)
            return read_answer(response.status, response.getheader("Retry-After"), answer)
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"hapax at {server.host}:{server.port} did not answer: {error!r}") from error
        finally:
            connection.close()

    def _post_repeatable(self, path: str, body: dict[str, Any], for_s: float = 0.0) -> dict[str, Any]:
        """For requests that change nothing more when they are made twice; those that say how work ended, for long."""
        repeats = Repeats(for_s)
        while True:
            try:
                return self._post(path, body)
            except HapaxError as error:
                time.sleep(repeats.pause_s(error))


class Claim:
    """A key that this caller holds, or one that was ``completed`` before.

    As a context manager it completes at the end of the block and releases when the block raises; an exit or an interrupt
    leaves it abandoned.
    """

    def __init__(self, hapax: Hapax, facts: ClaimFacts, interval: float | None) -> None:
        self._hapax = hapax
        self._facts = facts
        self._open = not facts.completed
        self._over = threading.Event()
        self._lost = threading.Event()
        if interval is not None:
            beat = threading.Thread(target=self._beat, args=(interval,), name=f"hapax {facts.key[:32]}", daemon=True)
            beat.start()

    key = property(lambda self: self._facts.key)
    scope = property(lambda self: self._facts.scope)
    token = property(lambda self: self._facts.token)

    @property
    def completed(self) -> bool:
        """True when the job was done before; ``result`` is its result."""
        return self._facts.completed

    @property
    def result(self) -> Any:
        """What the job that completed the key returned."""
        return self._facts.result

    @property
    def fence(self) -> int:
        """Grows at every claim of the key: store it with your own writes to refuse a late one."""
        return self._facts.fence

    @property
    def abandoned(self) -> bool:
        """True when the last holder died without completing: part of the job may have happened."""
        return self._facts.abandoned

    @property
    def lost(self) -> bool:
        """True once the heartbeat knows that another caller has taken over: a long job should look, and stop."""
        return self._lost.is_set()

    def complete(self, result: Any = None, *, keep: Duration | None = None) -> None:
        """Ends the claim: later callers get ``result``, for ``keep`` or the ``ttl`` of the claim."""
        self._stop()
        why: Exception | None = None
        try:
            encode({"result": result})
        except (TypeError, ValueError) as error:
            why, result = error, None
        try:
            self._hapax._post_repeatable("/v1/claims/complete", self._facts.body(result=result, keep=keep), self._facts.lease_s)
        except Problem as error:
            if result is None or isinstance(error, ClaimLost) or error.status not in (400, 413, 422):
                raise
            # Its job ran: it must not run again because its result is too large.
            self._hapax._post_repeatable("/v1/claims/complete", self._facts.body(keep=keep), self._facts.lease_s)
            why = error
        if why is not None:
            raise ResultNotKept(f"the job of {self.key!r} ran, but its result was not stored: {why}") from why

    def extend(self, lease: Duration | None = None) -> None:
        """Moves the end of the lease; raises ``ClaimLost`` when the key is another's."""
        self._hapax._post_repeatable("/v1/claims/extend", self._facts.body(lease=lease))

    def release(self) -> None:
        """Gives the key back: the next caller runs the job."""
        self._stop()
        self._hapax._post_repeatable("/v1/claims/release", self._facts.body())

    def release_quietly(self) -> None:
        """Releases where another error is on its way; what cannot be released is abandoned."""
        try:
            self.release()
        except HapaxError:
            pass

    def abandon(self) -> None:
        """Ends the heartbeat and nothing else, as a crash would."""
        self._stop()

    def _stop(self) -> None:
        self._open = False
        self._over.set()

    def _beat(self, interval: float) -> None:
        lease = interval * 3
        while not self._over.wait(interval):
            try:
                self._hapax._post("/v1/claims/extend", self._facts.body(lease=lease))
            except ClaimLost:
                if not self._over.is_set():
                    self._lost.set()
                return
            except HapaxError:
                # The next beat tries again; until another takes over the claim is ours, late or not.
                continue

    def __enter__(self) -> Claim:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        if not self._open:
            return
        if kind is None:
            self.complete()
        elif issubclass(kind, Exception):
            self.release_quietly()
        else:
            self.abandon()


def key_maker(key: str | Callable[..., str], function: Callable[..., Any]) -> Callable[..., str]:
    """Makes the function that turns arguments into a key."""
    if callable(key):
        return key
    signature = inspect.signature(function)

    def format_key(*args: Any, **kwargs: Any) -> str:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return key.format(**bound.arguments)

    return format_key
