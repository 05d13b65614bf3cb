"""pyTelegramBotAPI with Flask. It puts all of a message into the query of its call."""

import concurrent.futures
import hmac
import threading

import flask
import telebot
from telebot import apihelper
from werkzeug.serving import make_server

import bot

apihelper.API_URL = bot.HAPAX + "/bot{0}/{1}"
apihelper.FILE_URL = bot.HAPAX + "/file/bot{0}/{1}"
# With threads it answers before the handlers have run.
telegram = telebot.TeleBot("12345:a-token-for-tests-only", threaded=False)


@telegram.message_handler(content_types=["text"])
def on_message(message):
    def send(text):
        bot.sent(text, telegram.send_message(message.chat.id, text).message_id)
        bot.hold()

    if bot.together():
        with concurrent.futures.ThreadPoolExecutor() as threads:
            list(threads.map(send, bot.answers(message.text)))
        return
    for text in bot.answers(message.text):
        send(text)


web = flask.Flask(__name__)


@web.post("/")
def webhook():
    if not hmac.compare_digest(flask.request.headers.get("x-telegram-bot-api-secret-token", ""), bot.SECRET):
        flask.abort(403)
    try:
        telegram.process_new_updates([telebot.types.Update.de_json(flask.request.get_data(as_text=True))])
    except Exception as error:
        bot.failed(error)
        flask.abort(500)
    return ""


server = make_server("127.0.0.1", bot.PORT, web, threaded=True)
threading.Timer(0, bot.ready).start()
server.serve_forever()
