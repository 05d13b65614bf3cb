<?php

declare(strict_types=1);

use Hapax\Claim;
use Hapax\ClaimHeld;
use Hapax\ClaimInProgress;
use Hapax\ClaimLost;
use Hapax\FingerprintMismatch;
use Hapax\Hapax;
use Hapax\Problem;
use Hapax\ResultNotKept;
use Hapax\Unreachable;
use Hapax\Wire;

final class ClaimsTest
{
    private int $runs = 0;

    private function job(): Closure
    {
        return fn (): array => ['run' => ++$this->runs, 'text' => 'naïve ☕'];
    }

    public function testAJobRunsOnceAndItsResultIsReplayed(): void
    {
        [$hapax, $key] = [Rig::hapax(), Rig::newKey()];
        Rig::same(['run' => 1, 'text' => 'naïve ☕'], $hapax->once($key, $this->job()));
        Rig::same(['run' => 1, 'text' => 'naïve ☕'], $hapax->once($key, $this->job()));
    }

    public function testAnErrorReleasesAndIsThrown(): void
    {
        [$hapax, $key] = [Rig::hapax(), Rig::newKey()];
        Rig::throws(DomainException::class, fn () => $hapax->once($key, fn () => throw new DomainException('no such order')));
        Rig::throws(TypeError::class, fn () => $hapax->once($key, fn () => strlen()));
        Rig::same(1, $hapax->once($key, $this->job())['run']);
    }

    public function testOfManyProcessesOneRunsAndAllGetItsResult(): void
    {
        $key = Rig::newKey();
        Rig::server();
        $code = 'echo (new Hapax\Hapax())->once($argv[1], fn () => getmypid(), wait: "20s");';
        $started = array_map(static fn () => Rig::start($code, $key), range(1, 8));
        $said = array_map(static fn (array $one): string => stream_get_contents($one[1]), $started);
        array_map(static fn (array $one): int => proc_close($one[0]), $started);
        Rig::same(1, count(array_unique($said)));
        Rig::same(true, (int) $said[0] > 0);
    }

    public function testAKeyUnderWayIsRefused(): void
    {
        [$hapax, $key] = [Rig::hapax(), Rig::newKey()];
        $claim = $hapax->claim($key);
        $refused = Rig::throws(ClaimInProgress::class, fn () => $hapax->once($key, $this->job()));
        Rig::same([409, 'claim_in_progress', 0], [$refused->status, $refused->problemCode, $this->runs]);
        $claim->release();
    }

    public function testAnotherFingerprintIsRefused(): void
    {
        [$hapax, $key] = [Rig::hapax(), Rig::newKey()];
        $hapax->once($key, $this->job(), fingerprint: '10 EUR');
        Rig::throws(FingerprintMismatch::class, fn () => $hapax->once($key, $this->job(), fingerprint: '20 EUR'));
    }

    public function testTheHeartbeatExtends(): void
    {
        [$hapax, $key] = [Rig::hapax(), Rig::newKey()];
        $hapax->once($key, function (Claim $claim) use ($key): void {
            $first = Rig::stored($key)['lease_until'];
            Rig::eventually(fn () => Rig::stored($key)['lease_until'] > $first);
            Rig::same(false, $claim->lost());
        }, lease: '1s');
        Rig::same('completed', Rig::stored($key)['state']);
    }

    public function testACrashLeavesTheKeyAbandonedAndTheNextTakesOver(): void
    {
        [$hapax, $key] = [Rig::hapax(), Rig::newKey()];
        $this->crash($key, 'takeover');
        $claim = $hapax->claim($key, wait: '20s');
        Rig::same(true, $claim->abandoned);
        $claim->complete('done');
        Rig::same('done', $hapax->once($key, $this->job()));
    }

    public function testInDoubtNothingIsDoneTwice(): void
    {
        [$hapax, $key] = [Rig::hapax(), Rig::newKey()];
        $this->crash($key, 'hold');
        Rig::throws(ClaimHeld::class, fn () => $hapax->once($key, $this->job(), wait: '20s'));
        Rig::same(0, $this->runs);
    }

    public function testTheOldHolderIsRefused(): void
    {
        [$hapax, $key] = [Rig::hapax(), Rig::newKey()];
        $old = $hapax->claim($key, lease: 0.2, heartbeat: false);
        $new = $hapax->claim($key, wait: '20s');
        Rig::same(true, $new->fence > $old->fence);
        foreach ([fn () => $old->complete('late'), fn () => $old->extend(), fn () => $old->release()] as $late) {
            Rig::throws(ClaimLost::class, $late);
        }
        $new->release();
    }

    public function testAJobLearnsThatItsClaimIsLost(): void
    {
        [$hapax, $key] = [Rig::hapax(), Rig::newKey()];
        $claim = $hapax->claim($key, lease: '900ms');
        // Whoever has its token may give it up.
        $wire = new Wire(Rig::server(), getenv('HAPAX_TOKEN') ?: null, 30.0);
        $wire->post('/v1/claims/release', ['key' => $key, 'token' => $claim->token]);
        Rig::eventually(fn () => $claim->lost());
    }

    public function testAResultThatCannotBeStoredRunsNothingAgain(): void
    {
        $hapax = Rig::hapax();
        foreach (["\xff", str_repeat('x', 3 << 20)] as $result) {
            $key = Rig::newKey();
            Rig::throws(ResultNotKept::class, fn () => $hapax->once($key, fn () => $result));
            Rig::same(null, $hapax->once($key, $this->job()));
        }
        Rig::same(0, $this->runs);
    }

    public function testBadInputIsAProblemThatSaysWhatToChange(): void
    {
        $hapax = Rig::hapax();
        $long = str_repeat('k', 300);
        foreach ([['key' => ''], ['key' => $long], ['key' => 'k', 'ttl' => 0], ['key' => 'k', 'ttl' => '36500d']] as $bad) {
            $refused = Rig::throws(Problem::class, fn () => $hapax->claim(...$bad));
            Rig::same(true, in_array($refused->status, [400, 422], true));
        }
        $refused = Rig::throws(Problem::class, fn () => (new Hapax(Rig::server(), 'wrong'))->claim('k'));
        Rig::same(401, $refused->status);
    }

    public function testAJobThatIsDoneIsToldUntilHapaxIsBack(): void
    {
        $count = tempnam(sys_get_temp_dir(), 'hapax');
        $code = '<?php header("Content-Type: application/json"); header("Retry-After: 0.01");
            if ($_SERVER["REQUEST_URI"] === "/v1/claims") { http_response_code(201); exit(\'{"status":"claimed","token":"t","fence":1}\'); }
            file_put_contents(' . var_export($count, true) . ', "x", FILE_APPEND);
            http_response_code(filesize(' . var_export($count, true) . ') > 20 ? 200 : 503); echo "{}";';
        [$process, $url] = Rig::serve($code);
        try {
            Rig::same(1, (new Hapax($url))->once('k', fn () => 1, heartbeat: false));
            Rig::same(21, filesize($count));
        } finally {
            proc_terminate($process);
            proc_close($process);
            unlink($count);
        }
    }

    public function testNobodyThere(): void
    {
        Rig::throws(Unreachable::class, fn () => (new Hapax('http://127.0.0.1:1'))->claim('k'));
    }

    public function testDurations(): void
    {
        Rig::same([90.0, 300.0, 604800.0, 0.25, 3.0], array_map(Wire::seconds(...), ['90s', '5m', '7d', '250ms', 3]));
        foreach (['', '5', 'm', '1w', '-1s'] as $bad) {
            Rig::throws(InvalidArgumentException::class, fn () => Wire::seconds($bad));
        }
    }

    /** A process that claims a key and dies over it. */
    private function crash(string $key, string $onAbandoned): void
    {
        $code = '(new Hapax\Hapax())->once($argv[1], fn () => exit(9), lease: 0.3, onAbandoned: $argv[2]);';
        [$process] = Rig::start($code, $key, $onAbandoned);
        Rig::same(9, proc_close($process));
    }
}
