import asyncio
import unittest

from .rig import SERVER, Restarting, needs_server, new_key

from hapax import AsyncHapax, ClaimInProgress, ClaimLost, ResultNotKept, Unreachable


@needs_server
class AsyncClaims(unittest.IsolatedAsyncioTestCase):
    def setUp(self):
        self.hapax = AsyncHapax(SERVER)
        self.runs = 0

    async def job(self):
        self.runs += 1
        return {"run": self.runs}

    async def test_of_many_callers_one_runs_and_all_get_its_result(self):
        key = new_key()
        results = await asyncio.gather(*(self.hapax.once(key, self.job, wait="20s") for _ in range(20)))
        self.assertEqual(results, [{"run": 1}] * 20)

    async def test_an_error_releases(self):
        key = new_key()

        async def fail():
            raise LookupError

        with self.assertRaises(LookupError):
            await self.hapax.once(key, fail)
        self.assertEqual(await self.hapax.once(key, self.job), {"run": 1})

    async def test_a_cancelled_job_leaves_its_key_abandoned(self):
        key, begun = new_key(), asyncio.Event()

        async def long():
            begun.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(self.hapax.once(key, long, lease=0.3))
        await begun.wait()
        with self.assertRaises(ClaimInProgress):
            await self.hapax.once(key, self.job)
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        async with await self.hapax.claim(key, wait="20s") as claim:
            self.assertTrue(claim.abandoned)

    async def test_a_lost_claim_cancels_its_job(self):
        key, begun, cancelled = new_key(), asyncio.Event(), asyncio.Event()

        async def long():
            begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise

        claim = await self.hapax.claim(key, lease="900ms")
        running = asyncio.create_task(claim._run(long))
        await begun.wait()
        await self.hapax._post("/v1/claims/release", claim._facts.body())
        with self.assertRaises(ClaimLost):
            await running
        self.assertTrue(cancelled.is_set())

    async def test_the_decorator(self):
        @self.hapax.idempotent("{order}")
        async def charge(order):
            return await self.job()

        order = new_key()
        self.assertEqual(await charge(order), await charge(order))

    async def test_a_result_that_cannot_be_stored_runs_nothing_again(self):
        key = new_key()

        async def odd():
            return object()

        with self.assertRaises(ResultNotKept):
            await self.hapax.once(key, odd)
        self.assertIsNone(await self.hapax.once(key, self.job))


class AsyncWithoutServer(unittest.IsolatedAsyncioTestCase):
    async def test_a_job_that_is_done_is_told_until_hapax_is_back(self):
        hapax = Restarting(away=20)
        self.addCleanup(hapax.stop)

        async def job():
            return 1

        self.assertEqual(await AsyncHapax(hapax.url).once("k", job), 1)
        self.assertEqual(hapax.completions, 21)

    async def test_nobody_there(self):
        with self.assertRaises(Unreachable):
            await AsyncHapax("http://127.0.0.1:1").claim("k")
