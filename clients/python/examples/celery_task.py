"""A Celery task that takes effect once, although Celery delivers at least once (``acks_late``) and retries.

    pip install "celery[redis]" hapax-client
    celery -A celery_task worker
    python -c 'from celery_task import charge; charge.delay("4711", 1999)'
"""

from celery import Celery

from hapax import ClaimHeld, ClaimInProgress, Hapax

app = Celery("shop", broker="redis://127.0.0.1:6379/0")
app.conf.task_acks_late = True
app.conf.task_reject_on_worker_lost = True
hapax = Hapax()


@app.task(bind=True, max_retries=None)
def charge(self, order_id: str, cents: int) -> dict:
    def pay() -> dict:
        # Give the provider the key too, if it takes one: then even a repeat by hand is safe.
        return {"order": order_id, "charged": cents}

    try:
        return hapax.once(
            f"order-{order_id}",
            pay,
            scope="payments",
            fingerprint=str(cents),
            ttl="90d",
            # The worker died while it paid: do not pay again by yourself, a person looks (`hapax claims`).
            on_abandoned="hold",
        )
    except ClaimInProgress as busy:
        raise self.retry(exc=busy, countdown=busy.retry_after or 10)
    except ClaimHeld:
        return {"order": order_id, "charged": None, "in_doubt": True}
