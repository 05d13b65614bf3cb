<?php

declare(strict_types=1);

namespace Hapax;

/** A key that this caller holds, or one that was `completed` before. */
final class Claim
{
    /** True when the job was done before; `result` is its result. */
    public readonly bool $completed;
    public readonly mixed $result;
    public readonly string $token;
    /** Grows at every claim of the key: store it with your own writes to refuse a late one. */
    public readonly int $fence;
    /** True when the last holder died without completing: part of the job may have happened. */
    public readonly bool $abandoned;
    private ?Heartbeat $heartbeat = null;

    /** @param array<string, mixed> $answer */
    public function __construct(
        private readonly Wire $wire,
        public readonly string $key,
        public readonly ?string $scope,
        array $answer,
        private readonly float $leaseS,
        bool $heartbeat,
    ) {
        $this->completed = ($answer['status'] ?? null) === 'completed';
        $this->result = $answer['result'] ?? null;
        $this->token = (string) ($answer['token'] ?? '');
        $this->fence = (int) ($answer['fence'] ?? 0);
        $this->abandoned = ($answer['previous'] ?? null) === 'abandoned';
        if (!$this->completed && $heartbeat) {
            $extend = $this->body() + ['lease' => $leaseS];
            $this->heartbeat = Heartbeat::start($wire, '/v1/claims/extend', [$extend], $leaseS / 3);
        }
    }

    /** True once another caller has taken over: a long job should look, and stop. */
    public function lost(): bool
    {
        return $this->heartbeat?->lost() !== [] && $this->heartbeat !== null;
    }

    /** Ends the claim: later callers get `$result`, for `$keep` or the `ttl` of the claim. */
    public function complete(mixed $result = null, string|int|float|null $keep = null): void
    {
        $this->abandon();
        $why = null;
        try {
            json_encode($result, JSON_THROW_ON_ERROR);
        } catch (\JsonException $error) {
            [$why, $result] = [$error, null];
        }
        try {
            $ended = $this->body() + ['result' => $result, 'keep' => $keep];
            $this->wire->postRepeatable('/v1/claims/complete', $ended, $this->leaseS);
        } catch (Problem $error) {
            $refused = !($error instanceof ClaimLost) && in_array($error->status, [400, 413, 422], true);
            if ($result === null || !$refused) {
                throw $error;
            }
            // Its job ran: it must not run again because its result is too large.
            $this->wire->postRepeatable('/v1/claims/complete', $this->body() + ['keep' => $keep], $this->leaseS);
            $why = $error;
        }
        if ($why !== null) {
            $told = "the job of {$this->key} ran, but its result was not stored: {$why->getMessage()}";
            throw new ResultNotKept($told, previous: $why);
        }
    }

    /** Moves the end of the lease; throws ClaimLost when the key is another's. */
    public function extend(string|int|float|null $lease = null): void
    {
        $this->wire->postRepeatable('/v1/claims/extend', $this->body() + ['lease' => $lease]);
    }

    /** Gives the key back: the next caller runs the job. */
    public function release(): void
    {
        $this->abandon();
        $this->wire->postRepeatable('/v1/claims/release', $this->body());
    }

    /** Releases where another error is on its way; what cannot be released is abandoned. */
    public function releaseQuietly(): void
    {
        try {
            $this->release();
        } catch (HapaxError) {
        }
    }

    /** Ends the heartbeat and nothing else, as a crash would. */
    public function abandon(): void
    {
        $this->heartbeat?->stop();
        $this->heartbeat = null;
    }

    /** @return array<string, mixed> */
    private function body(): array
    {
        return ['key' => $this->key, 'scope' => $this->scope, 'token' => $this->token];
    }
}
