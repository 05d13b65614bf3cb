import os
import pickle
import subprocess
import sys
import threading
import unittest
from concurrent.futures import ThreadPoolExecutor

from .rig import SERVER, Restarting, eventually, needs_server, new_key, stored

import hapax as package
from hapax import ClaimHeld, ClaimInProgress, ClaimLost, FingerprintMismatch, Hapax, Problem, ResultNotKept, Unreachable

#: A process that claims a key and dies over it.
CRASHES = """
import os, sys
from hapax import Hapax
Hapax().once(sys.argv[1], lambda: os._exit(9), lease=0.3, on_abandoned=sys.argv[2])
"""


def crash(key: str, on_abandoned: str) -> None:
    path = os.path.dirname(os.path.dirname(package.__file__))
    died = subprocess.run([sys.executable, "-c", CRASHES, key, on_abandoned], env={**os.environ, "PYTHONPATH": path})
    assert died.returncode == 9, died


@needs_server
class Claims(unittest.TestCase):
    def setUp(self):
        self.hapax = Hapax(SERVER)
        self.runs = 0

    def job(self):
        self.runs += 1
        return {"run": self.runs, "text": "naïve ☕"}

    def test_a_job_runs_once_and_its_result_is_replayed(self):
        key = new_key()
        first = self.hapax.once(key, self.job)
        second = self.hapax.once(key, self.job)
        self.assertEqual((first, second, self.runs), ({"run": 1, "text": "naïve ☕"}, first, 1))

    def test_scopes_keep_keys_apart(self):
        key = new_key()
        self.hapax.once(key, self.job, scope="a")
        self.hapax.once(key, self.job, scope="b")
        self.assertEqual(self.runs, 2)

    def test_an_error_releases_and_is_raised(self):
        key = new_key()

        def fail():
            raise LookupError("no such order")

        with self.assertRaisesRegex(LookupError, "no such order"):
            self.hapax.once(key, fail)
        self.assertEqual(self.hapax.once(key, self.job)["run"], 1)

    def test_of_many_callers_one_runs_and_all_get_its_result(self):
        key, lock = new_key(), threading.Lock()

        def job():
            with lock:
                self.runs += 1
                return self.runs

        with ThreadPoolExecutor(20) as pool:
            calls = [pool.submit(self.hapax.once, key, job, wait="20s") for _ in range(20)]
            self.assertEqual([call.result() for call in calls], [1] * 20)

    def test_a_key_under_way_is_refused_and_an_interrupt_leaves_it_so(self):
        key = new_key()

        def interrupted():
            raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            self.hapax.once(key, interrupted)
        with self.assertRaises(ClaimInProgress) as refused:
            self.hapax.once(key, self.job)
        self.assertEqual((refused.exception.status, refused.exception.code, self.runs), (409, "claim_in_progress", 0))

    def test_another_fingerprint_is_refused(self):
        key = new_key()
        self.hapax.once(key, self.job, fingerprint="10 EUR")
        with self.assertRaises(FingerprintMismatch):
            self.hapax.once(key, self.job, fingerprint="20 EUR")

    def test_the_heartbeat_extends(self):
        with self.hapax.claim(new_key(), lease="1s") as claim:
            first = stored(claim.key)["lease_until"]
            eventually(lambda: stored(claim.key)["lease_until"] > first)
            self.assertFalse(claim.lost)
        self.assertEqual(stored(claim.key)["state"], "completed")

    def test_a_crash_leaves_the_key_abandoned_and_the_next_takes_over(self):
        key = new_key()
        crash(key, "takeover")
        claim = self.hapax.claim(key, wait="20s")
        self.assertTrue(claim.abandoned)
        claim.complete("done")
        self.assertEqual(self.hapax.once(key, self.job), "done")

    def test_in_doubt_nothing_is_done_twice(self):
        key = new_key()
        crash(key, "hold")
        with self.assertRaises(ClaimHeld):
            self.hapax.once(key, self.job, wait="20s")
        self.assertEqual(self.runs, 0)

    def test_the_old_holder_is_refused(self):
        key = new_key()
        old = self.hapax.claim(key, lease=0.2, heartbeat=False)
        new = self.hapax.claim(key, wait="20s")
        self.assertGreater(new.fence, old.fence)
        for late in (lambda: old.complete("late"), old.extend, old.release):
            with self.assertRaises(ClaimLost):
                late()
        new.release()

    def test_a_long_job_learns_that_it_has_lost(self):
        key = new_key()
        claim = self.hapax.claim(key, lease="900ms")
        # Whoever has its token may give it up.
        self.hapax._post("/v1/claims/release", claim._facts.body())
        eventually(lambda: claim.lost)

    def test_a_block_completes_or_releases(self):
        key = new_key()
        with self.assertRaises(ValueError), self.hapax.claim(key):
            raise ValueError
        with self.hapax.claim(key) as claim:
            self.assertFalse(claim.completed)
        self.assertTrue(self.hapax.claim(key).completed)

    def test_the_decorator_makes_keys_of_arguments(self):
        order = new_key()

        @self.hapax.idempotent("{order}/{part}")
        def ship(order, part=1):
            """Ships."""
            self.runs += 1
            return part

        self.assertEqual([ship(order), ship(order, 1), ship(order, part=2)], [1, 1, 2])
        self.assertEqual((self.runs, ship.__doc__), (2, "Ships."))

        charge = self.hapax.idempotent(lambda order: f"{order}/charge")(lambda order: self.job())
        self.assertEqual(charge(order), charge(order))

    def test_a_result_that_cannot_be_stored_runs_nothing_again(self):
        for result in (object(), "x" * (3 << 20)):
            key = new_key()
            with self.assertRaises(ResultNotKept):
                self.hapax.once(key, lambda: result)
            self.assertIsNone(self.hapax.once(key, self.job))
        self.assertEqual(self.runs, 0)

    def test_bad_input_is_a_problem_that_says_what_to_change(self):
        for bad in (dict(key=""), dict(key="k" * 300), dict(key=new_key(), ttl=0), dict(key=new_key(), ttl="36500d")):
            with self.assertRaises(Problem) as refused:
                self.hapax.claim(**bad)
            self.assertIn(refused.exception.status, (400, 422))
            self.assertTrue(refused.exception.detail)
        with self.assertRaises(Problem) as refused:
            Hapax(SERVER, token="wrong").claim(new_key())
        self.assertEqual(refused.exception.status, 401)


class WithoutServer(unittest.TestCase):
    def test_a_job_that_is_done_is_told_until_hapax_is_back(self):
        hapax = Restarting(away=20)
        self.addCleanup(hapax.stop)
        self.assertEqual(Hapax(hapax.url).once("k", lambda: 1), 1)
        self.assertEqual(hapax.completions, 21)

    def test_nobody_there(self):
        with self.assertRaises(Unreachable):
            Hapax("http://127.0.0.1:1").claim("k")

    def test_errors_go_between_processes(self):
        busy = pickle.loads(pickle.dumps(ClaimInProgress(409, "claim_in_progress", "another is at work", 2.0)))
        self.assertEqual((type(busy), busy.retry_after, str(busy)), (ClaimInProgress, 2.0, "another is at work"))

    def test_addresses_and_durations(self):
        for bad in ("ftp://x", "http://"):
            with self.assertRaises(ValueError):
                Hapax(bad)
        from hapax._wire import seconds

        self.assertEqual([seconds(d) for d in ("90s", "5m", "1h", "7d", "250ms", 3, 0.5)], [90, 300, 3600, 604800, 0.25, 3, 0.5])
        for bad in ("", "5", "m", "1w", "-1s", "1s 2"):
            with self.assertRaises(ValueError):
                seconds(bad)
