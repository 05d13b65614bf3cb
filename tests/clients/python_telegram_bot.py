"""python-telegram-bot with a web server of one's own, because its own one answers before the handlers have run."""

import asyncio
import hmac

import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
from telegram import Update
from telegram.ext import Application, MessageHandler, filters

import bot


async def on_message(update, context):
    async def send(text):
        message = await update.message.reply_text(text)
        bot.sent(text, message.message_id)
        while bot.held():
            await asyncio.sleep(0.01)

    if bot.together():
        await asyncio.gather(*map(send, bot.answers(update.message.text)))
        return
    for text in bot.answers(update.message.text):
        await send(text)


failed = {}


async def on_error(update, context):
    """Without this the library writes errors to the log, and nobody else hears of them."""
    failed[update.update_id] = context.error
    bot.failed(context.error)


async def main():
    builder = Application.builder().token("12345:a-token-for-tests-only").updater(None)
    builder = builder.base_url(f"{bot.HAPAX}/bot").base_file_url(f"{bot.HAPAX}/file/bot")
    application = builder.connect_timeout(30).read_timeout(30).build()
    application.add_handler(MessageHandler(filters.TEXT, on_message))
    application.add_error_handler(on_error)

    async def telegram(request):
        if not hmac.compare_digest(request.headers.get("x-telegram-bot-api-secret-token", ""), bot.SECRET):
            return Response(status_code=403)
        update = Update.de_json(await request.json(), application.bot)
        await application.process_update(update)
        return Response(status_code=500 if failed.pop(update.update_id, None) else 200)

    web = Starlette(routes=[Route("/", telegram, methods=["POST"])])
    server = uvicorn.Server(uvicorn.Config(web, host="127.0.0.1", port=bot.PORT, log_level="warning"))
    async with application:
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        bot.ready()
        await serving


asyncio.run(main())
