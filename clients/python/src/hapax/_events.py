"""Events that a worker fetches by itself: ``mode = "pull"``."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from typing import TYPE_CHECKING, Any, AsyncIterator, Iterator, Sequence

from ._errors import HapaxError, Problem
from ._wire import WAIT_MAX_S, Duration, seconds

if TYPE_CHECKING:
    from ._aio import AsyncHapax
    from ._client import Hapax

#: The lease of an item that does not tell its own.
LEASE_MS = 10_000
#: The pause after a pull that failed, so that a hapax that restarts is waited for.
PAUSE_S = 1.0
#: The lease is another's by now, which gets the event again.
LOST_STATUS = 409


class _Item:
    """One event, as it was pulled."""

    def __init__(self, item: dict[str, Any]) -> None:
        #: All fields as hapax sent them.
        self.raw = item
        #: The same at every attempt: the key for what the handler does elsewhere.
        self.event_id: str = item["event_id"]
        self.attempt: int = int(item.get("attempt") or 1)
        self.fence: int = int(item.get("fence") or 0)
        #: The handle of this attempt.
        self.lease: str = item["lease"]
        self.lease_s: float = (item.get("lease_ms") or LEASE_MS) / 1000
        self.thread: str | None = item.get("thread")
        #: Those that a target would get, names in small letters.
        self.headers: dict[str, str] = {row["name"].lower(): row["value"] for row in item.get("headers") or []}
        #: The body that a target would get; bytes where it is no text.
        self.body: str | bytes = item.get("body") or ""
        if item.get("body_encoding") == "base64":
            self.body = base64.b64decode(self.body)
        self.settled = False
        #: True once hapax said that the lease is another's: nothing that is done for it counts any more.
        self.lost = False

    def json(self) -> Any:
        """The body, parsed."""
        return json.loads(self.body)

    def _settlement(self, outcome: str, after: Duration | None, why: str | None, replies: Sequence[Any] | None) -> dict[str, Any]:
        return {"lease": self.lease, "outcome": outcome, "after": after, "why": why, "replies": replies}


class Event(_Item):
    """An event to work on. It is settled once; settling a lost one raises ``Problem``."""

    def __init__(self, hapax: Hapax, item: dict[str, Any]) -> None:
        super().__init__(item)
        self._hapax = hapax

    def done(self, replies: Sequence[Any] | None = None) -> None:
        """It is done; ``replies`` are sent once, with the completion."""
        self._settle("done", replies=replies)

    def retry(self, after: Duration | None = None, why: str | None = None) -> None:
        """It failed and comes again, after ``after`` or the channel's backoff."""
        self._settle("retry", after=after, why=why)

    def park(self, why: str | None = None) -> None:
        """It cannot be handled: a person has to look."""
        self._settle("park", why=why)

    def hand_back(self) -> None:
        """It was not begun: another worker gets it at once."""
        self._settle("hand_back")

    def _done_unless_lost(self) -> None:
        try:
            if not self.lost:
                self.done()
        except Problem as error:
            if error.status != LOST_STATUS:
                raise
            self.lost = True

    def _settle(
        self, outcome: str, after: Duration | None = None, why: str | None = None, replies: Sequence[Any] | None = None
    ) -> None:
        if not self.settled:
            self._hapax._post_repeatable("/v1/settle", self._settlement(outcome, after, why, replies), self.lease_s)
            self.settled = True


class AsyncEvent(_Item):
    """An event to work on; see ``Event``."""

    def __init__(self, hapax: AsyncHapax, item: dict[str, Any]) -> None:
        super().__init__(item)
        self._hapax = hapax

    async def done(self, replies: Sequence[Any] | None = None) -> None:
        """It is done; ``replies`` are sent once, with the completion."""
        await self._settle("done", replies=replies)

    async def retry(self, after: Duration | None = None, why: str | None = None) -> None:
        """It failed and comes again, after ``after`` or the channel's backoff."""
        await self._settle("retry", after=after, why=why)

    async def park(self, why: str | None = None) -> None:
        """It cannot be handled: a person has to look."""
        await self._settle("park", why=why)

    async def hand_back(self) -> None:
        """It was not begun: another worker gets it at once."""
        await self._settle("hand_back")

    async def _done_unless_lost(self) -> None:
        try:
            if not self.lost:
                await self.done()
        except Problem as error:
            if error.status != LOST_STATUS:
                raise
            self.lost = True

    async def _settle(
        self, outcome: str, after: Duration | None = None, why: str | None = None, replies: Sequence[Any] | None = None
    ) -> None:
        if not self.settled:
            await self._hapax._post_repeatable("/v1/settle", self._settlement(outcome, after, why, replies), self.lease_s)
            self.settled = True


def _ask(channel: str, most: int, wait: Duration) -> tuple[dict[str, Any], float]:
    wait_s = min(seconds(wait), WAIT_MAX_S)
    return {"channel": channel, "max": most, "wait": wait_s}, wait_s


def _is_over(error: HapaxError) -> bool:
    """Whether asking again is of no use: the request itself is refused."""
    return isinstance(error, Problem) and error.status < 500 and error.status != 429


def _interval(events: Sequence[_Item]) -> float:
    """How often leases are extended: three times before the first of them ends."""
    return min(event.lease_s for event in events) / 3


def pull_events(hapax: Hapax, channel: str, most: int, wait: Duration, forever: bool) -> Iterator[Event]:
    body, wait_s = _ask(channel, most, wait)
    over = threading.Event()
    while True:
        try:
            answer = hapax._post("/v1/pull", body, wait=wait_s)
        except HapaxError as error:
            if _is_over(error) or not forever:
                raise
            over.wait(PAUSE_S)
            continue
        events = [Event(hapax, item) for item in answer.get("items", [])]
        if events:
            yield from _one_by_one(hapax, events)
        elif not forever:
            return


def _one_by_one(hapax: Hapax, events: list[Event]) -> Iterator[Event]:
    over = threading.Event()
    interval = _interval(events)

    def beat() -> None:
        while not over.wait(interval):
            for event in [event for event in events if not (event.settled or event.lost)]:
                try:
                    hapax._post("/v1/extend", {"lease": event.lease})
                except HapaxError as error:
                    event.lost = event.lost or _is_over(error)

    threading.Thread(target=beat, name=f"hapax {events[0].event_id}", daemon=True).start()
    begun = 0
    try:
        for event in events:
            begun += 1
            if not event.lost:
                yield event
                event._done_unless_lost()
    finally:
        over.set()
        for event in events[begun:]:
            try:
                event.hand_back()
            except HapaxError:
                pass


async def pull_events_async(
    hapax: AsyncHapax, channel: str, most: int, wait: Duration, forever: bool
) -> AsyncIterator[AsyncEvent]:
    body, wait_s = _ask(channel, most, wait)
    while True:
        try:
            answer = await hapax._post("/v1/pull", body, wait=wait_s)
        except HapaxError as error:
            if _is_over(error) or not forever:
                raise
            await asyncio.sleep(PAUSE_S)
            continue
        events = [AsyncEvent(hapax, item) for item in answer.get("items", [])]
        if not events:
            if not forever:
                return
            continue
        beat = asyncio.create_task(_beat_async(hapax, events))
        begun = 0
        try:
            for event in events:
                begun += 1
                if not event.lost:
                    yield event
                    await event._done_unless_lost()
        finally:
            beat.cancel()
            for event in events[begun:]:
                try:
                    await event.hand_back()
                except HapaxError:
                    pass


async def _beat_async(hapax: AsyncHapax, events: list[AsyncEvent]) -> None:
    while True:
        await asyncio.sleep(_interval(events))
        for event in [event for event in events if not (event.settled or event.lost)]:
            try:
                await hapax._post("/v1/extend", {"lease": event.lease})
            except HapaxError as error:
                event.lost = event.lost or _is_over(error)
