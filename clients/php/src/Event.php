<?php

declare(strict_types=1);

namespace Hapax;

/** An event of a channel with `mode = "pull"`, to work on. It is settled once. */
final class Event
{
    /** The lease of an item that does not tell its own. */
    private const LEASE_MS = 10_000;
    /** The pause after a pull that failed, so that a hapax that restarts is waited for. */
    private const PAUSE_S = 1.0;
    /** The lease is another's by now, which gets the event again. */
    private const LOST_STATUS = 409;

    /** The same at every attempt: the key for what the handler does elsewhere. */
    public readonly string $eventId;
    public readonly int $attempt;
    public readonly int $fence;
    /** The handle of this attempt. */
    public readonly string $lease;
    public readonly ?string $thread;
    public readonly int $leaseMs;
    /** @var array<string, string> those that a target would get, names in small letters */
    public readonly array $headers;
    /** The body that a target would get. */
    public readonly string $body;
    private bool $settled = false;

    /** @param array<string, mixed> $raw all fields as hapax sent them */
    public function __construct(private readonly Wire $wire, public readonly array $raw)
    {
        $this->eventId = (string) $raw['event_id'];
        $this->attempt = (int) ($raw['attempt'] ?? 1);
        $this->fence = (int) ($raw['fence'] ?? 0);
        $this->lease = (string) $raw['lease'];
        $this->thread = isset($raw['thread']) ? (string) $raw['thread'] : null;
        $this->leaseMs = (int) ($raw['lease_ms'] ?? self::LEASE_MS);
        $names = array_map(strtolower(...), array_column($raw['headers'] ?? [], 'name'));
        $this->headers = array_combine($names, array_column($raw['headers'] ?? [], 'value'));
        $body = (string) ($raw['body'] ?? '');
        $this->body = ($raw['body_encoding'] ?? '') === 'base64' ? (string) base64_decode($body) : $body;
    }

    /** The body, parsed. */
    public function json(): mixed
    {
        return json_decode($this->body, true, 512, JSON_THROW_ON_ERROR);
    }

    /**
     * It is done; `$replies` are sent once, with the completion.
     *
     * @param list<mixed>|null $replies
     */
    public function done(?array $replies = null): void
    {
        $this->settle(['outcome' => 'done', 'replies' => $replies]);
    }

    /** It failed and comes again, after `$after` or the channel's backoff. */
    public function retry(string|int|float|null $after = null, ?string $why = null): void
    {
        $this->settle(['outcome' => 'retry', 'after' => $after, 'why' => $why]);
    }

    /** It cannot be handled: a person has to look. */
    public function park(?string $why = null): void
    {
        $this->settle(['outcome' => 'park', 'why' => $why]);
    }

    /** It was not begun: another worker gets it at once. */
    public function handBack(): void
    {
        $this->settle(['outcome' => 'hand_back']);
    }

    /** @param array<string, mixed> $settlement */
    private function settle(array $settlement): void
    {
        if (!$this->settled) {
            $this->wire->postRepeatable('/v1/settle', ['lease' => $this->lease] + $settlement, $this->leaseMs / 1000);
            $this->settled = true;
        }
    }

    /** @return \Generator<int, self, void, void> */
    public static function pull(Wire $wire, string $channel, int $max, float $waitS, bool $forever): \Generator
    {
        $ask = ['channel' => $channel, 'max' => $max, 'wait' => $waitS];
        for (;;) {
            try {
                $answer = $wire->post('/v1/pull', $ask, $waitS);
            } catch (HapaxError $error) {
                $refused = $error instanceof Problem && $error->status < 500 && $error->status !== 429;
                if ($refused || !$forever) {
                    throw $error;
                }
                Wire::pause(self::PAUSE_S);
                continue;
            }
            $events = array_map(static fn (array $item): self => new self($wire, $item), $answer['items'] ?? []);
            if ($events !== []) {
                yield from self::oneByOne($wire, $events);
            } elseif (!$forever) {
                return;
            }
        }
    }

    /**
     * @param list<self> $events
     * @return \Generator<int, self, void, void>
     */
    private static function oneByOne(Wire $wire, array $events): \Generator
    {
        $leases = array_map(static fn (self $event): array => ['lease' => $event->lease], $events);
        $interval = min(array_map(static fn (self $event): int => $event->leaseMs, $events)) / 3000;
        $heartbeat = Heartbeat::start($wire, '/v1/extend', $leases, $interval);
        $begun = 0;
        try {
            foreach ($events as $place => $event) {
                $begun += 1;
                if (in_array($place, $heartbeat?->lost() ?? [], true)) {
                    continue;
                }
                yield $event;
                try {
                    $event->done();
                } catch (Problem $problem) {
                    if ($problem->status !== self::LOST_STATUS) {
                        throw $problem;
                    }
                }
            }
        } finally {
            $heartbeat?->stop();
            foreach (array_slice($events, $begun) as $event) {
                try {
                    $event->handBack();
                } catch (HapaxError) {
                }
            }
        }
    }
}
