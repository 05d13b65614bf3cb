import os
import unittest

from .rig import SERVER, needs_server

from hapax import AsyncHapax, Hapax, Problem

CHANNEL = os.environ.get("HAPAX_PULL_CHANNEL")
needs_channel = unittest.skipUnless(CHANNEL, "no channel to pull from: HAPAX_PULL_CHANNEL names none")


@needs_server
@needs_channel
class Pull(unittest.IsolatedAsyncioTestCase):
    """The test's hapax has six messages waiting, each of a person of its own."""

    async def test_events_come_until_they_are_done(self):
        hapax = Hapax(SERVER)
        ids = []
        for event in hapax.pull(CHANNEL, max=2, wait=0, forever=False):
            self.assertEqual(event.attempt, 1)
            self.assertTrue(event.json())
            ids.append(event.event_id)
            if len(ids) == 3:
                event.done()
                break
        # The one that was left by an error is not done; what was fetched with it and not begun went back.
        with self.assertRaises(LookupError):
            for event in hapax.pull(CHANNEL, max=2, wait=0, forever=False):
                self.assertNotIn(event.event_id, ids)
                event.retry(after=0, why="not now")
                raise LookupError
        seen = {}
        async for event in AsyncHapax(SERVER).pull(CHANNEL, max=10, wait="2s", forever=False):
            self.assertIn("hapax-event-id", event.headers)
            seen[event.event_id] = event.attempt
        self.assertEqual(len(seen), 3)
        self.assertIn(2, seen.values())
        self.assertFalse(set(seen) & set(ids))

    def test_a_channel_that_is_not_there(self):
        with self.assertRaises(Problem):
            next(Hapax(SERVER).pull("no-such-channel", wait=0))
