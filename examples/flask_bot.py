"""A WhatsApp bot with Flask, as one would write it without hapax. Its own three lines for hapax are marked.

pip install flask
META_APP_SECRET=... python examples/flask_bot.py
hapax listen 3000/webhook
"""

import hashlib
import hmac
import os

from flask import Flask, abort, request

app = Flask(__name__)
secret = os.environ["META_APP_SECRET"].encode()


@app.post("/webhook")
def webhook():
    signed = "sha256=" + hmac.new(secret, request.get_data(), hashlib.sha256).hexdigest()
    if not hmac.compare_digest(signed, request.headers.get("X-Hub-Signature-256", "")):
        abort(401)
    replies = []
    for entry in request.get_json()["entry"]:
        for change in entry["changes"]:
            for message in change["value"].get("messages", []):
                replies.append({"text": "You said: " + message["text"]["body"]})  # 1: what to answer
    # 2 and 3: hapax sends it, once, also when this process dies right after the next line
    return {"replies": replies}, 200, {"Content-Type": "application/vnd.hapax.replies+json"}


if __name__ == "__main__":
    app.run(port=int(os.environ.get("PORT", "3000")))
