<?php

declare(strict_types=1);

namespace Hapax;

/** Whether a request comes from hapax: the Standard Webhooks headers that `sign_with` of a channel adds. */
final class Signature
{
    /**
     * Checks a delivered request and returns its id (`webhook-id`), which is the same at every attempt.
     *
     * `$body` is the raw body (`file_get_contents('php://input')`), `$headers` those of `getallheaders()`. Of several
     * secrets (during a rotation) one has to fit. Throws BadSignature.
     *
     * @param array<string, string> $headers
     * @param string|list<string> $secret
     */
    public static function verify(
        string $body,
        array $headers,
        string|array $secret,
        int $tolerance = 300,
        ?int $now = null,
    ): string {
        $headers = array_change_key_case($headers);
        foreach (['webhook-id', 'webhook-timestamp', 'webhook-signature'] as $name) {
            if (!is_string($headers[$name] ?? null) || $headers[$name] === '') {
                throw new BadSignature("the header $name is missing");
            }
        }
        ['webhook-id' => $id, 'webhook-timestamp' => $signedAt, 'webhook-signature' => $given] = $headers;
        if (!preg_match('/^\d{1,15}$/D', $signedAt)) {
            throw new BadSignature('the header webhook-timestamp is no number');
        }
        if (abs(($now ?? time()) - (int) $signedAt) > $tolerance) {
            throw new BadSignature('the request was signed too long ago, or one of the clocks is wrong');
        }
        foreach ((array) $secret as $one) {
            $mac = hash_hmac('sha256', "$id.$signedAt.$body", self::keyOf($one), true);
            $expected = 'v1,' . base64_encode($mac);
            foreach (explode(' ', $given) as $candidate) {
                if (hash_equals($expected, $candidate)) {
                    return $id;
                }
            }
        }
        throw new BadSignature('no signature fits');
    }

    /** A secret that starts with `whsec_` holds its key in base64; any other is the key. */
    private static function keyOf(string $secret): string
    {
        $encoded = str_starts_with($secret, 'whsec_') ? substr($secret, strlen('whsec_')) : null;
        $key = $encoded !== null && strlen($encoded) % 4 === 0 ? base64_decode($encoded, true) : false;
        return $key === false ? $secret : $key;
    }
}
