// grammY on Node's own server.

import { createServer } from "node:http";
import { HAPAX, PORT, SECRET, answers, failed, library, ready, sent, together } from "./bot.mjs";

const { Bot, webhookCallback } = library("grammy");

const bot = new Bot("12345:a-token-for-tests-only", { client: { apiRoot: HAPAX } });
bot.on("message:text", async (context) => {
  const send = async (text) => {
    const message = await context.reply(text);
    await sent(text, message.message_id);
  };
  if (together()) {
    await Promise.all([...answers(context.message.text)].map(send));
    return;
  }
  for (const text of answers(context.message.text)) {
    await send(text);
  }
});

// By itself it gives up after 10 s, while the handler goes on.
const webhook = webhookCallback(bot, "http", { secretToken: SECRET, timeoutMilliseconds: 300_000 });
const server = createServer(async (request, response) => {
  try {
    await webhook(request, response);
  } catch (error) {
    failed(error);
    response.writeHead(500).end();
  }
});
server.listen(Number(PORT), "127.0.0.1", ready);
