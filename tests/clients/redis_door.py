"""What programs do with redis-py: plain claims, its Lock, and a race of many. Prints one JSON object."""

import json
import os
import sys
import threading

import redis
from redis.exceptions import LockNotOwnedError

PORTS = [int(port) for port in os.environ["PORTS"].split(",")]
TOKEN = os.environ.get("TOKEN")
# Whose certificate the door has, where it speaks TLS.
TLS = {"ssl": True, "ssl_ca_certs": os.environ["CA"]} if "CA" in os.environ else {}


def client(port=PORTS[0], **more):
    return redis.Redis(host="127.0.0.1", port=port, password=TOKEN, socket_timeout=120, **TLS, **more)


def plain(protocol):
    door = client(protocol=protocol)
    key = f"plain-{protocol}"
    said = {
        "first": door.set(key, "a", nx=True, ex=60),
        "second": door.set(key, "b", nx=True, ex=60),
        "get": door.get(key).decode(),
        "ttl": 58 <= door.ttl(key) <= 60,
        "get_and_set": door.set(key, "c", get=True, keepttl=True).decode(),
        "kept": 58 <= door.ttl(key) <= 60,
        "expire": door.expire(key, 100),
        "pttl": 98_000 < door.pttl(key) <= 100_000,
        "mget": [value and value.decode() for value in door.mget(key, "nothing")],
        "exists": door.exists(key, key, "nothing"),
        "deleted": door.delete(key),
        "setnx": [door.setnx(key, "d"), door.setnx(key, "e")],
        "unlinked": door.unlink(key, "nothing"),
        "ping": door.ping(),
    }
    with door.pipeline(transaction=False) as pipe:
        for n in range(300):
            pipe.set(f"{key}-{n % 100}", str(n), nx=True, px=60_000)
        taken = pipe.execute()
    said["pipeline"] = [taken[:100] == [True] * 100, taken[100:] == [None] * 200]
    return said


def lock():
    door = client()
    mine, other = door.lock("lock", timeout=30), door.lock("lock", timeout=30)
    said = {"mine": mine.acquire(blocking=False), "other": other.acquire(blocking=False), "owned": mine.owned()}
    said["extend"] = [mine.extend(30), 50 < door.ttl("lock") <= 60]
    said["replace"] = [mine.extend(20, replace_ttl=True), 18 <= door.ttl("lock") <= 20]
    said["reacquire"] = [mine.reacquire(), 28 <= door.ttl("lock") <= 30]
    mine.release()
    said["next"] = other.acquire(blocking=False)
    door.set("lock", "stolen")
    try:
        other.release()
    except LockNotOwnedError:
        said["stolen"] = True
    with door.lock("context", timeout=10, blocking_timeout=5):
        said["context"] = door.exists("context")
    said["after"] = door.exists("context")
    return said


def race(callers, key):
    """As many threads, each with a connection of its own, begin at once; how many have won."""
    ready, won = threading.Barrier(callers), []

    def call(n):
        door = client(PORTS[n % len(PORTS)])
        door.ping()
        ready.wait()
        if door.set(key, f"caller {n}", nx=True, ex=600):
            won.append(f"caller {n}")

    threads = [threading.Thread(target=call, args=(n,)) for n in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"won": won, "holder": [client(port).get(key).decode() for port in PORTS]}


WORDS = sys.argv[1:]
if WORDS[0] == "all":
    print(json.dumps({"two": plain(2), "three": plain(3), "lock": lock()}))
else:
    print(json.dumps(race(int(WORDS[1]), WORDS[2])))
