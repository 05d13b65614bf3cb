import json
import os
import unittest

from . import rig  # noqa: F401

from hapax import BadSignature, verify

#: The example of the specification's own libraries.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
BODY = b'{"test": 2432232314}'
AT = 1614265330
HEADERS = {
    "Webhook-Id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "webhook-timestamp": str(AT),
    "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}


class Signatures(unittest.TestCase):
    def test_the_published_example_passes(self):
        self.assertEqual(verify(BODY, HEADERS, SECRET, now=AT), HEADERS["Webhook-Id"])
        self.assertEqual(verify(BODY.decode(), HEADERS, ["another", SECRET], now=AT + 299), HEADERS["Webhook-Id"])
        several = {**HEADERS, "webhook-signature": "v1a,xx v1,AAAA " + HEADERS["webhook-signature"]}
        self.assertEqual(verify(BODY, several, SECRET, now=AT), HEADERS["Webhook-Id"])

    def test_whatever_was_changed_is_refused(self):
        for body, headers, secret, now in [
            (BODY + b" ", HEADERS, SECRET, AT),
            (BODY, {**HEADERS, "Webhook-Id": "msg_other"}, SECRET, AT),
            (BODY, {**HEADERS, "webhook-timestamp": str(AT + 1)}, SECRET, AT),
            (BODY, {**HEADERS, "webhook-timestamp": "9" * 5000}, SECRET, AT),
            (BODY, {**HEADERS, "webhook-signature": ""}, SECRET, AT),
            (BODY, {"webhook-id": "x"}, SECRET, AT),
            (BODY, HEADERS, "whsec_AAAA", AT),
            (BODY, HEADERS, [], AT),
            (BODY, HEADERS, SECRET, AT + 301),
            (BODY, HEADERS, SECRET, AT - 301),
        ]:
            with self.assertRaises(BadSignature):
                verify(body, headers, secret, now=now)

    @unittest.skipUnless("HAPAX_DELIVERED" in os.environ, "no delivered request: HAPAX_DELIVERED names none")
    def test_what_hapax_delivers_passes(self):
        with open(os.environ["HAPAX_DELIVERED"]) as file:
            delivered = json.load(file)
        self.assertEqual(verify(delivered["body"], delivered["headers"], delivered["secret"]), delivered["id"])
        with self.assertRaises(BadSignature):
            verify(delivered["body"] + " ", delivered["headers"], delivered["secret"])
