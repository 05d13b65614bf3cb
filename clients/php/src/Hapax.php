<?php

declare(strict_types=1);

namespace Hapax;

/**
 * A running hapax.
 *
 * Durations are texts ("90s", "5m", "7d") or seconds. Address and token come from HAPAX_SERVER and HAPAX_TOKEN where they
 * are not given; the token needs the scope `work`.
 */
final class Hapax
{
    public const DEFAULT_LEASE = '60s';

    private readonly Wire $wire;

    public function __construct(?string $url = null, ?string $token = null, string|int|float $timeout = '30s')
    {
        $url ??= getenv('HAPAX_SERVER') ?: 'http://127.0.0.1:4272';
        $url = str_contains($url, '://') ? $url : "http://$url";
        $token ??= getenv('HAPAX_TOKEN') ?: (getenv('HAPAX_ADMIN_TOKEN') ?: null);
        $this->wire = new Wire(rtrim($url, '/'), $token, Wire::seconds($timeout));
    }

    /**
     * Runs `$job` unless it was done before, and returns its result, which is stored as JSON.
     *
     * Throws what the job throws, after the key was released; ClaimInProgress when another caller is still at work after
     * `$wait`. A process that ends in mid-job leaves the key abandoned.
     *
     * @template T
     * @param callable(Claim): T $job
     * @return T
     */
    public function once(
        string $key,
        callable $job,
        ?string $scope = null,
        string|int|float|null $ttl = null,
        string|int|float $lease = self::DEFAULT_LEASE,
        ?string $fingerprint = null,
        ?string $onAbandoned = null,
        string|int|float $wait = 0,
        string|int|float|null $keep = null,
        bool $heartbeat = true,
    ): mixed {
        $claim = $this->claim($key, $scope, $ttl, $lease, $fingerprint, $onAbandoned, $wait, $heartbeat);
        if ($claim->completed) {
            return $claim->result;
        }
        try {
            $value = $job($claim);
        } catch (\Throwable $error) {
            $claim->releaseQuietly();
            throw $error;
        }
        $claim->complete($value, $keep);
        return $value;
    }

    /**
     * Claims a key, or finds it `completed`. Without an end by the caller it is abandoned.
     *
     * - `$scope`: the family of jobs that the key belongs to.
     * - `$ttl`: how long a completed key is remembered.
     * - `$lease`: how long a crash keeps others waiting; a process beside this one extends it while the claim is open.
     * - `$fingerprint`: a hash of what the job is about; the same key with another one is refused.
     * - `$onAbandoned`: 'takeover', or 'hold', which waits for a person when the holder has died.
     * - `$wait`: how long to wait for another holder.
     */
    public function claim(
        string $key,
        ?string $scope = null,
        string|int|float|null $ttl = null,
        string|int|float $lease = self::DEFAULT_LEASE,
        ?string $fingerprint = null,
        ?string $onAbandoned = null,
        string|int|float $wait = 0,
        bool $heartbeat = true,
    ): Claim {
        $ask = ['key' => $key, 'scope' => $scope, 'ttl' => $ttl, 'lease' => $lease, 'fingerprint' => $fingerprint,
            'on_abandoned' => $onAbandoned];
        $leaseS = Wire::seconds($lease);
        $until = microtime(true) + Wire::seconds($wait);
        for (;;) {
            $left = max(0.0, $until - microtime(true));
            try {
                $answer = $this->wire->post('/v1/claims', $ask, min($left, Wire::WAIT_MAX_S));
                return new Claim($this->wire, $key, $scope, $answer, $leaseS, $heartbeat);
            } catch (ClaimInProgress $busy) {
                $left = $until - microtime(true);
                if ($left <= 0) {
                    throw $busy;
                }
                Wire::pause(min($left, $busy->retryAfter ?: 0.2, 1.0));
            }
        }
    }

    /**
     * Yields the events of a channel with `mode = "pull"`, one after the other.
     *
     * Asking for the next event says that the last one is done, unless it was settled otherwise. A loop that is left by an
     * error settles nothing: the event comes again after its lease. With `forever: false` it ends when nothing is waiting.
     *
     * @return \Generator<int, Event, void, void>
     */
    public function pull(string $channel, int $max = 1, string|int|float $wait = '20s', bool $forever = true): \Generator
    {
        return Event::pull($this->wire, $channel, $max, min(Wire::seconds($wait), Wire::WAIT_MAX_S), $forever);
    }
}
