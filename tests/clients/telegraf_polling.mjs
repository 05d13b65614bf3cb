// telegraf, which polls and confirms a batch of updates after it was handled.

import { HAPAX, answers, failed, library, ready, sent, together } from "./bot.mjs";

const { Telegraf } = library("telegraf");

const bot = new Telegraf("12345:a-token-for-tests-only", { telegram: { apiRoot: HAPAX }, handlerTimeout: 300_000 });
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
// By itself it confirms the update that failed, and then ends the process.
bot.catch((error) => {
  failed(error);
  process.exit(1);
});
await bot.launch(ready);
