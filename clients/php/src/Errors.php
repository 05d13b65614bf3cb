<?php

declare(strict_types=1);

namespace Hapax;

/** The root of all errors of this package. */
class HapaxError extends \RuntimeException
{
}

/** A request that was not signed by hapax with one of the secrets, or too long ago. */
final class BadSignature extends HapaxError
{
}

/** hapax did not answer. Whether it has heard the request is not known. */
final class Unreachable extends HapaxError
{
}

/** The job ran and its key is completed, but its result could not be stored: later callers get null. */
final class ResultNotKept extends HapaxError
{
}

/** hapax said no. `problemCode` is stable and meant for programs, the message for people. */
class Problem extends HapaxError
{
    final public function __construct(
        public readonly int $status,
        public readonly string $problemCode,
        string $detail,
        public readonly ?float $retryAfter = null,
    ) {
        parent::__construct($detail);
    }

    /** The error that an answer stands for. */
    public static function of(int $status, mixed $value, ?string $retryAfter): self
    {
        $value = is_array($value) ? $value : [];
        $code = (string) ($value['code'] ?? '');
        $detail = (string) ($value['detail'] ?? $value['title'] ?? "hapax answered $status");
        $after = is_numeric($retryAfter) ? (float) $retryAfter : null;
        return match ($code) {
            'claim_in_progress' => new ClaimInProgress($status, $code, $detail, $after),
            'claim_held' => new ClaimHeld($status, $code, $detail, $after),
            'claim_lost' => new ClaimLost($status, $code, $detail, $after),
            'fingerprint_mismatch' => new FingerprintMismatch($status, $code, $detail, $after),
            default => new self($status, $code, $detail, $after),
        };
    }
}

/** Another caller holds the key and is at work. */
final class ClaimInProgress extends Problem
{
}

/** The last holder died and said `onAbandoned: 'hold'`: a person has to release the key. */
final class ClaimHeld extends Problem
{
}

/** Another caller has taken over: what this one did afterwards does not count. */
final class ClaimLost extends Problem
{
}

/** The key was used before, with another fingerprint. */
final class FingerprintMismatch extends Problem
{
}
