"""A Flask bot behind hapax: it believes only what hapax has signed, and sends each invoice once.

    pip install flask hapax-client
    HAPAX_SECRET=whsec_... flask --app flask_app run --port 3000

The channel in hapax.toml has ``target = "http://127.0.0.1:3000/webhook"`` and ``sign_with = "${HAPAX_SECRET}"``.
"""

import os

from flask import Flask, abort, request

from hapax import BadSignature, Hapax, verify

app = Flask(__name__)
hapax = Hapax()
SECRET = os.environ["HAPAX_SECRET"]


@app.post("/webhook")
def webhook():
    try:
        event_id = verify(request.get_data(), request.headers, SECRET)
    except BadSignature:
        abort(401)
    # hapax calls again when this process dies: the id is the same, so the invoice goes out once.
    hapax.once(f"invoice-{event_id}", lambda: send_invoice(request.get_json()), scope="invoices", wait="5s")
    return "", 204


def send_invoice(order: dict) -> dict:
    return {"invoice_for": order.get("id")}
