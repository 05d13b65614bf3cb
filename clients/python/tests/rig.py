"""A running hapax: its address and token are in HAPAX_SERVER and HAPAX_TOKEN."""

import http.server
import json
import os
import sys
import threading
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


class Restarting:
    """A hapax that gives a claim, and is away when it is to be completed: so many times it cannot be reached."""

    def __init__(self, away: int) -> None:
        self.completions = 0
        stage = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                if self.path == "/v1/claims":
                    return self.answer(201, {"status": "claimed", "token": "t", "fence": 1})
                stage.completions += 1
                status = 503 if stage.completions <= away else 200
                self.answer(status, {"code": "stopping"} if status == 503 else {"status": "completed"})

            def answer(self, status: int, body: dict) -> None:
                raw = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(raw)))
                self.send_header("Retry-After", "0.01")
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
