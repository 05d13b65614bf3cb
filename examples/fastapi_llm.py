"""A Telegram bot with FastAPI that takes its time, as bots with a language model do. Telegram would have sent the update again by then.

pip install fastapi uvicorn
TELEGRAM_SECRET=... uvicorn --app-dir examples --port 3000 fastapi_llm:app
hapax listen 3000/webhook
"""

import asyncio
import hmac
import os

from fastapi import FastAPI, Header, HTTPException

app = FastAPI()
secret = os.environ["TELEGRAM_SECRET"]
thinking_s = float(os.environ.get("THINKING_SECONDS", "8"))


async def ask_the_model(question: str) -> str:
    await asyncio.sleep(thinking_s)
    return f"After {thinking_s:g} seconds of thought: {question}?"


@app.post("/webhook")
async def webhook(update: dict, x_telegram_bot_api_secret_token: str = Header("")):
    if not hmac.compare_digest(x_telegram_bot_api_secret_token, secret):
        raise HTTPException(401)
    message = update.get("message")
    if not message or "text" not in message:
        return {}
    # Telegram's own way to answer inside the answer: hapax keeps it in the same commit as "done", and sends it once.
    answer = await ask_the_model(message["text"])
    return {"method": "sendMessage", "chat_id": message["chat"]["id"], "text": answer}
