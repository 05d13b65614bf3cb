<?php

declare(strict_types=1);

use Hapax\BadSignature;
use Hapax\Signature;

final class SignatureTest
{
    /** The example of the specification's own libraries. */
    private const SECRET = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';
    private const BODY = '{"test": 2432232314}';
    private const AT = 1614265330;
    private const HEADERS = [
        'Webhook-Id' => 'msg_p5jXN8AQM9LWM0D4loKWxJek',
        'webhook-timestamp' => '1614265330',
        'webhook-signature' => 'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=',
    ];

    public function testThePublishedExamplePasses(): void
    {
        $id = self::HEADERS['Webhook-Id'];
        Rig::same($id, Signature::verify(self::BODY, self::HEADERS, self::SECRET, now: self::AT));
        $several = ['webhook-signature' => 'v1a,xx v1,AAAA ' . self::HEADERS['webhook-signature']] + self::HEADERS;
        Rig::same($id, Signature::verify(self::BODY, $several, ['another', self::SECRET], now: self::AT + 299));
    }

    public function testWhateverWasChangedIsRefused(): void
    {
        $cases = [
            [self::BODY . ' ', [], self::SECRET, self::AT],
            [self::BODY, ['Webhook-Id' => 'msg_other'], self::SECRET, self::AT],
            [self::BODY, ['webhook-timestamp' => '1614265331'], self::SECRET, self::AT],
            [self::BODY, ['webhook-timestamp' => 'soon'], self::SECRET, self::AT],
            [self::BODY, ['webhook-signature' => ''], self::SECRET, self::AT],
            [self::BODY, [], 'whsec_AAAA', self::AT],
            [self::BODY, [], [], self::AT],
            [self::BODY, [], self::SECRET, self::AT + 301],
            [self::BODY, [], self::SECRET, self::AT - 301],
        ];
        foreach ($cases as [$body, $headers, $secret, $now]) {
            Rig::throws(BadSignature::class, fn () => Signature::verify($body, $headers + self::HEADERS, $secret, now: $now));
        }
        Rig::throws(BadSignature::class, fn () => Signature::verify(self::BODY, [], self::SECRET, now: self::AT));
    }

    public function testWhatHapaxDeliversPasses(): void
    {
        $file = getenv('HAPAX_DELIVERED') ?: throw new Skipped('HAPAX_DELIVERED names no request');
        ['id' => $id, 'headers' => $headers, 'body' => $body, 'secret' => $secret] = json_decode(file_get_contents($file), true);
        Rig::same($id, Signature::verify($body, $headers, $secret));
        Rig::throws(BadSignature::class, fn () => Signature::verify("$body ", $headers, $secret));
    }
}
