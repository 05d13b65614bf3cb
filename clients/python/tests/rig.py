"""A running hapax: its address and token are in HAPAX_SERVER and HAPAX_TOKEN."""

import json
import os
import sys
import time
import unittest
import urllib.parse
import urllib.request
import uuid
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

SERVER = os.environ.get("HAPAX_SERVER")
needs_server = unittest.skipUnless(SERVER, "no hapax: set HAPAX_SERVER and HAPAX_TOKEN")
PATIENCE_S = 30.0


def new_key() -> str:
    return f"py-{uuid.uuid4()}"


def eventually(look):
    """Looks again and again until there is something; for what the server does in its own time."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        if found := look():
            return found
        time.sleep(0.02)
    raise AssertionError("it did not happen")


def stored(key: str) -> dict:
    """A claim as the server lists it."""
    url = f"{SERVER}/v1/claims?{urllib.parse.urlencode({'key': key})}"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {os.environ['HAPAX_TOKEN']}"})
    with urllib.request.urlopen(request) as answer:
        return next(row for row in json.load(answer)["items"] if row["key"] == key)
