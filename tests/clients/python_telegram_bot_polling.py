"""python-telegram-bot, which polls and confirms updates before it has handled them."""

import asyncio

from telegram.ext import ApplicationBuilder, MessageHandler, filters

from bot import HAPAX, answers, failed, held, ready, sent


async def handle(update, context):
    for text in answers(update.message.text):
        message = await update.message.reply_text(text)
        sent(text, message.message_id)
        while held():
            await asyncio.sleep(0.01)


async def on_error(update, context):
    failed(context.error)


async def begin(application):
    ready()


application = (
    ApplicationBuilder()
    .token("12345:a-token-for-tests-only")
    .base_url(f"{HAPAX}/bot")
    .base_file_url(f"{HAPAX}/file/bot")
    .read_timeout(30)
    .post_init(begin)
    .build()
)
application.add_handler(MessageHandler(filters.TEXT, handle))
application.add_error_handler(on_error)
application.run_polling()
