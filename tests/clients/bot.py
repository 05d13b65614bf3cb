"""What the bots in Python share: what they answer, what they write down, and how they are made to die."""

import json
import os
import random
import signal
import time

HAPAX = os.environ.get("HAPAX", "")
PORT = int(os.environ["PORT"])
SECRET = os.environ["SECRET"]
# Lines of [text, id that the library gave], and of ["failed", why] when a handler has.
JOURNAL = os.environ["JOURNAL"]
# While this file is there: the bot kills itself after its next send, and takes the file with it.
DIE = os.environ["JOURNAL"] + ".die"
# While this file is there, the bot waits after each send.
WAIT = os.environ["JOURNAL"] + ".wait"
# While this file is there, the bot sends all answers at once.
TOGETHER = os.environ["JOURNAL"] + ".together"
# While this file is there, the bot words each answer in its own way.
REWORD = os.environ["JOURNAL"] + ".reword"


def answers(text):
    """Three messages to send for one."""
    for number in (1, 2, 3):
        words = f"{text}: {number} of 3"
        yield f"{words} {random.randrange(10**9)}" if os.path.exists(REWORD) else words


def write_down(*row):
    with open(JOURNAL, "a", encoding="utf-8") as journal:
        journal.write(json.dumps(row) + "\n")


def failed(error):
    write_down("failed", repr(error))


def sent(text, message_id):
    """To be called after each send."""
    write_down(text, message_id)
    if os.path.exists(DIE):
        os.remove(DIE)
        os.kill(os.getpid(), signal.SIGKILL)


def together():
    return os.path.exists(TOGETHER)


def held():
    return os.path.exists(WAIT)


def hold():
    while held():
        time.sleep(0.01)


def ready():
    print("ready", flush=True)
