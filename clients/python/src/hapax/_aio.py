"""The client for asyncio: the same methods, awaited."""

from __future__ import annotations

import asyncio
import functools
import ssl
import time
from typing import Any, AsyncIterator, Awaitable, Callable, ParamSpec, TypeVar, cast

from ._client import OnAbandoned, key_maker
from ._errors import ClaimInProgress, ClaimLost, HapaxError, Problem, ResultNotKept, Unreachable
from ._events import AsyncEvent, pull_events_async
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
    parse_response,
    read_answer,
    seconds,
)

T = TypeVar("T")
P = ParamSpec("P")


class AsyncHapax:
    """A running hapax, for programs with an event loop; see ``Hapax``."""

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

    async def once(
        self,
        key: str,
        job: Callable[[], Awaitable[T]],
        *,
        scope: str | None = None,
        ttl: Duration | None = None,
        lease: Duration = DEFAULT_LEASE,
        fingerprint: str | None = None,
        on_abandoned: OnAbandoned | None = None,
        wait: Duration = 0,
        keep: Duration | None = None,
    ) -> T:
        """Runs ``job`` unless it was done before, and returns its result; see ``Hapax.once``.

        A job whose claim is lost is cancelled, and ``ClaimLost`` raised. Being cancelled leaves the key abandoned.
        """
        claim = await self.claim(
            key, scope=scope, ttl=ttl, lease=lease, fingerprint=fingerprint, on_abandoned=on_abandoned, wait=wait
        )
        if claim.completed:
            return cast(T, claim.result)
        try:
            value = await claim._run(job)
        except ClaimLost:
            claim.abandon()
            raise
        except Exception:
            await claim.release_quietly()
            raise
        except BaseException:
            claim.abandon()
            raise
        await claim.complete(value, keep=keep)
        return value

    def idempotent(
        self, key: str | Callable[P, str], **options: Any
    ) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Awaitable[T]]]:
        """Decorates a coroutine function that is to run once per key; see ``Hapax.idempotent``."""

        def decorate(function: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
            key_of = key_maker(key, function)

            @functools.wraps(function)
            async def run(*args: P.args, **kwargs: P.kwargs) -> T:
                return await self.once(key_of(*args, **kwargs), lambda: function(*args, **kwargs), **options)

            return run

        return decorate

    async def claim(
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
    ) -> AsyncClaim:
        """Claims a key, or finds it ``completed``; see ``Hapax.claim``."""
        ask = Ask(key, scope, ttl, lease, fingerprint, on_abandoned, wait)
        interval = seconds(lease) / 3
        until = time.monotonic() + seconds(wait)
        while True:
            left = max(0.0, until - time.monotonic())
            try:
                facts = ClaimFacts.read(ask, await self._post("/v1/claims", ask.body(), wait=min(left, WAIT_MAX_S)))
            except ClaimInProgress as busy:
                left = until - time.monotonic()
                if left <= 0:
                    raise
                await asyncio.sleep(min(left, busy.retry_after or 0.2, 1.0))
                continue
            return AsyncClaim(self, facts, interval if heartbeat and not facts.completed else None)

    def pull(self, channel: str, *, max: int = 1, wait: Duration = "20s", forever: bool = True) -> AsyncIterator[AsyncEvent]:
        """Yields the events of a channel with ``mode = "pull"``; see ``Hapax.pull``."""
        return pull_events_async(self, channel, max, wait, forever)

    async def _post(self, path: str, body: dict[str, Any], *, wait: float = 0.0) -> dict[str, Any]:
        server = self._server
        try:
            raw = await asyncio.wait_for(_exchange(server, path, encode(body), wait), self._timeout + wait)
        except (OSError, asyncio.TimeoutError) as error:
            raise Unreachable(f"hapax at {server.host}:{server.port} did not answer: {error!r}") from error
        return read_answer(*parse_response(raw))

    async def _post_repeatable(self, path: str, body: dict[str, Any], for_s: float = 0.0) -> dict[str, Any]:
        repeats = Repeats(for_s)
        while True:
            try:
                return await self._post(path, body)
            except HapaxError as error:
                await asyncio.sleep(repeats.pause_s(error))


async def _exchange(server: Server, path: str, body: bytes, wait: float) -> bytes:
    reader, writer = await asyncio.open_connection(server.host, server.port, ssl=server.tls if server.secure else None)
    try:
        head = [f"POST {server.prefix}{path} HTTP/1.1"]
        head += [f"{name}: {value}" for name, value in server.headers(body, wait).items()]
        writer.write("\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body)
        await writer.drain()
        # We asked for the connection to be closed, so that the answer ends with it.
        raw = bytearray()
        while part := await reader.read(1 << 16):
            raw += part
            if len(raw) > ANSWER_MAX_BYTES:
                raise Unreachable("the answer of hapax is larger than any can be")
        return bytes(raw)
    finally:
        writer.close()


class AsyncClaim:
    """A key that this caller holds, or one that was ``completed`` before; see ``Claim``."""

    def __init__(self, hapax: AsyncHapax, facts: ClaimFacts, interval: float | None) -> None:
        self._hapax = hapax
        self._facts = facts
        self._open = not facts.completed
        self._lost = asyncio.Event()
        self._task = None if interval is None else asyncio.create_task(self._beat(interval))

    key = property(lambda self: self._facts.key)
    scope = property(lambda self: self._facts.scope)
    token = property(lambda self: self._facts.token)
    completed = property(lambda self: self._facts.completed)
    result = property(lambda self: self._facts.result)
    fence = property(lambda self: self._facts.fence)
    abandoned = property(lambda self: self._facts.abandoned)

    @property
    def lost(self) -> bool:
        """True once the heartbeat knows that another caller has taken over."""
        return self._lost.is_set()

    async def complete(self, result: Any = None, *, keep: Duration | None = None) -> None:
        """Ends the claim: later callers get ``result``."""
        self._stop()
        why: Exception | None = None
        try:
            encode({"result": result})
        except (TypeError, ValueError) as error:
            why, result = error, None
        try:
            await self._hapax._post_repeatable("/v1/claims/complete", self._facts.body(result=result, keep=keep), self._facts.lease_s)
        except Problem as error:
            if result is None or isinstance(error, ClaimLost) or error.status not in (400, 413, 422):
                raise
            await self._hapax._post_repeatable("/v1/claims/complete", self._facts.body(keep=keep), self._facts.lease_s)
            why = error
        if why is not None:
            raise ResultNotKept(f"the job of {self.key!r} ran, but its result was not stored: {why}") from why

    async def extend(self, lease: Duration | None = None) -> None:
        """Moves the end of the lease; raises ``ClaimLost`` when the key is another's."""
        await self._hapax._post_repeatable("/v1/claims/extend", self._facts.body(lease=lease))

    async def release(self) -> None:
        """Gives the key back: the next caller runs the job."""
        self._stop()
        await self._hapax._post_repeatable("/v1/claims/release", self._facts.body())

    async def release_quietly(self) -> None:
        """Releases where another error is on its way; what cannot be released is abandoned."""
        try:
            await self.release()
        except HapaxError:
            pass

    def abandon(self) -> None:
        """Ends the heartbeat and nothing else, as a crash would."""
        self._stop()

    def _stop(self) -> None:
        self._open = False
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self, job: Callable[[], Awaitable[T]]) -> T:
        """Runs the job until it ends or the claim is lost."""
        running = asyncio.ensure_future(job())
        lost = asyncio.ensure_future(self._lost.wait())
        try:
            await asyncio.wait({running, lost}, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                return await running
            raise ClaimLost(409, "claim_lost", f"another caller has taken over {self.key!r}: the job was cancelled")
        finally:
            lost.cancel()
            if not running.done():
                running.cancel()
                await asyncio.wait({running})

    async def _beat(self, interval: float) -> None:
        while True:
            await asyncio.sleep(interval)
            try:
                await self._hapax._post("/v1/claims/extend", self._facts.body(lease=interval * 3))
            except ClaimLost:
                self._lost.set()
                return
            except HapaxError:
                # The next beat tries again; until another takes over the claim is ours, late or not.
                continue

    async def __aenter__(self) -> AsyncClaim:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        if not self._open:
            return
        if kind is None:
            await self.complete()
        elif issubclass(kind, Exception):
            await self.release_quietly()
        else:
            self.abandon()
