// A WhatsApp bot with nothing but Node.
//
// META_APP_SECRET=... node examples/bot.mjs
// hapax listen 3000/webhook
import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";

const sign = (body) => Buffer.from("sha256=" + createHmac("sha256", process.env.META_APP_SECRET).update(body).digest("hex"));

const server = createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const body = Buffer.concat(chunks);
  const [expected, given] = [sign(body), Buffer.from(request.headers["x-hub-signature-256"] ?? "")];
  if (request.url !== "/webhook") return response.writeHead(404).end();
  if (expected.length !== given.length || !timingSafeEqual(expected, given)) return response.writeHead(401).end();

  const messages = JSON.parse(body).entry.flatMap((entry) => entry.changes).flatMap((change) => change.value.messages ?? []);
  const replies = messages.map((message) => ({ text: `You said: ${message.text.body}` }));
  // hapax sends the replies, once, in the same commit in which it notes that this message is done.
  response.writeHead(200, { "content-type": "application/vnd.hapax.replies+json" });
  response.end(JSON.stringify({ replies }));
});

server.listen(Number(process.env.PORT ?? 3000), "127.0.0.1");
