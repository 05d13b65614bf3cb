"""Checks webhooks with the libraries of those who send them: /stripe and /standard."""

import http.server

import standardwebhooks
import stripe

import bot


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            if self.path == "/stripe":
                event = stripe.Webhook.construct_event(body, self.headers["stripe-signature"], bot.SECRET)
                bot.write_down("stripe", event.id)
            else:
                event = standardwebhooks.Webhook(bot.SECRET).verify(body, dict(self.headers))
                bot.write_down("standard", event["type"])
            self.send_response(200)
        except (stripe.SignatureVerificationError, standardwebhooks.WebhookVerificationError) as error:
            bot.failed(error)
            self.send_response(400)
        self.end_headers()


server = http.server.ThreadingHTTPServer(("127.0.0.1", bot.PORT), Handler)
bot.ready()
server.serve_forever()
