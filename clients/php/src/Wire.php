<?php

declare(strict_types=1);

namespace Hapax;

/** One running hapax: its address, the token, and how it is asked. */
final class Wire
{
    /** Longest time that one request waits; longer waits are several requests. */
    public const WAIT_MAX_S = 30.0;
    private const TRIES = 5;
    private const FIRST_PAUSE_S = 0.1;
    private const PAUSE_MAX_S = 5.0;
    /** How work ended is told for as long as its lease lasts, and no longer than this. */
    private const TOLD_MAX_S = 60.0;
    private const UNITS = ['ms' => 0.001, 's' => 1.0, 'm' => 60.0, 'h' => 3600.0, 'd' => 86400.0];

    public function __construct(
        public readonly string $base,
        public readonly ?string $token,
        public readonly float $timeoutS,
    ) {
    }

    /** Reads "90s", "5m", "1h", "7d", "250ms" or a number of seconds. */
    public static function seconds(string|int|float $duration): float
    {
        if (!is_string($duration)) {
            return (float) $duration;
        }
        if (!preg_match('/^(\d+(?:\.\d+)?)(ms|s|m|h|d)$/D', trim($duration), $found)) {
            throw new \InvalidArgumentException("$duration is no duration; write \"90s\", \"5m\" or a number of seconds");
        }
        return (float) $found[1] * self::UNITS[$found[2]];
    }

    public static function pause(float $seconds): void
    {
        usleep((int) max(0.0, $seconds * 1_000_000));
    }

    /**
     * @param array<string, mixed> $body
     * @return array<string, mixed>
     */
    public function post(string $path, array $body, float $wait = 0.0): array
    {
        $given = array_filter($body, static fn (mixed $value): bool => $value !== null);
        $headers = ['Content-Type: application/json', 'Accept: application/json', 'User-Agent: hapax-php/0.1'];
        $headers[] = 'Connection: close';
        if ($this->token !== null) {
            $headers[] = "Authorization: Bearer {$this->token}";
        }
        if ($wait >= 1.0) {
            $headers[] = 'Prefer: wait=' . (int) $wait;
        }
        $context = stream_context_create(['http' => [
            'method' => 'POST',
            'header' => $headers,
            'content' => json_encode((object) $given, JSON_THROW_ON_ERROR | JSON_PRESERVE_ZERO_FRACTION),
            'timeout' => $this->timeoutS + $wait,
            'ignore_errors' => true,
            'follow_location' => 0,
            'protocol_version' => 1.1,
        ]]);
        $text = @file_get_contents($this->base . $path, false, $context);
        if ($text === false || !isset($http_response_header[0])) {
            $why = error_get_last()['message'] ?? 'no answer';
            throw new Unreachable("hapax at {$this->base} did not answer: $why");
        }
        return self::read($http_response_header, $text);
    }

    /**
     * For requests that change nothing more when they are made twice; those that say how work ended, for long.
     *
     * @param array<string, mixed> $body
     * @return array<string, mixed>
     */
    public function postRepeatable(string $path, array $body, float $forS = 0.0): array
    {
        $until = microtime(true) + min($forS, self::TOLD_MAX_S);
        for ($attempt = 1; ; $attempt++) {
            try {
                return $this->post($path, $body);
            } catch (HapaxError $error) {
                $after = $error instanceof Problem ? $error->retryAfter : null;
                $passing = $error instanceof Unreachable
                    || ($error instanceof Problem && in_array($error->status, [429, 502, 503, 504], true));
                if (!$passing || ($attempt >= self::TRIES && microtime(true) >= $until)) {
                    throw $error;
                }
                self::pause(min($after ?: self::FIRST_PAUSE_S * 2 ** min($attempt - 1, 10), self::PAUSE_MAX_S));
            }
        }
    }

    /**
     * @param list<string> $head
     * @return array<string, mixed>
     */
    private static function read(array $head, string $text): array
    {
        $status = preg_match('#^HTTP/\S+ (\d{3})#', $head[0], $found) ? (int) $found[1] : 0;
        $value = json_decode($text, true, 512);
        if ($status >= 200 && $status < 300) {
            return is_array($value) ? $value : [];
        }
        $retryAfter = null;
        foreach ($head as $line) {
            if (stripos($line, 'retry-after:') === 0) {
                $retryAfter = trim(substr($line, strlen('retry-after:')));
            }
        }
        throw Problem::of($status, $value, $retryAfter);
    }
}
