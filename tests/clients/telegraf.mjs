// telegraf on Node's own server.

import { createServer } from "node:http";
import { HAPAX, PORT, SECRET, answers, failed, library, ready, sent, together } from "./bot.mjs";

const { Telegraf } = library("telegraf");

const bot = new Telegraf("12345:a-token-for-tests-only", {
  telegram: { apiRoot: HAPAX, webhookReply: false },
  handlerTimeout: 300_000,
});
bot.on("text", async (context) => {
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
// By itself it answers 200 to what failed, and then ends the process.
bot.catch((error, context) => {
  failed(error);
  context.telegram.response.statusCode = 500;
});

const server = createServer(bot.webhookCallback("/", { secretToken: SECRET }));
server.listen(Number(PORT), "127.0.0.1", ready);
