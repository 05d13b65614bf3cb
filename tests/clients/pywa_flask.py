"""pywa with Flask. It has no setting for Meta's address, so its HTTP client gets a transport that goes elsewhere."""

import concurrent.futures
import threading

import httpx
from flask import Flask
from pywa import WhatsApp
from werkzeug.serving import make_server

import bot


class ToHapax(httpx.HTTPTransport):
    def handle_request(self, request):
        hapax = httpx.URL(bot.HAPAX)
        request.url = request.url.copy_with(scheme=hapax.scheme, host=hapax.host, port=hapax.port)
        return super().handle_request(request)


web = Flask(__name__)
whatsapp = WhatsApp(
    phone_id="700001",
    token="a token for tests only",
    server=web,
    verify_token="knock knock",
    app_secret=bot.SECRET,
    validate_updates=True,
    skip_duplicate_updates=False,
    session=httpx.Client(transport=ToHapax(), timeout=30),
)


@whatsapp.on_message
def on_message(_, message):
    def send(text):
        bot.sent(text, message.reply(text).id)
        bot.hold()

    try:
        if bot.together():
            with concurrent.futures.ThreadPoolExecutor() as threads:
                list(threads.map(send, bot.answers(message.text)))
            return
        for text in bot.answers(message.text):
            send(text)
    except Exception as error:
        bot.failed(error)
        raise


server = make_server("127.0.0.1", bot.PORT, web, threaded=True)
threading.Timer(0, bot.ready).start()
server.serve_forever()
