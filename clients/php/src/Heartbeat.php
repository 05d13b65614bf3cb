<?php

declare(strict_types=1);

namespace Hapax;

/**
 * Extends leases while this process is busy: a second PHP process, because PHP has no threads.
 *
 * It lives as long as its input is open. That closes when the process that holds the lease ends, however it ends, so a crash
 * leaves the claim abandoned. Where no process can be started, leases are not extended: choose them long enough, or call
 * `extend`.
 */
final class Heartbeat
{
    /** @var array<int, true> */
    private array $lost = [];

    /**
     * @param resource $process
     * @param array<int, resource> $pipes
     */
    private function __construct(private $process, private array $pipes)
    {
    }

    /** @param list<array<string, mixed>> $bodies one request each, made again and again */
    public static function start(Wire $wire, string $path, array $bodies, float $interval): ?self
    {
        if (!function_exists('proc_open')) {
            return null;
        }
        $php = PHP_SAPI === 'cli' ? PHP_BINARY : PHP_BINDIR . '/php';
        $pipes = [];
        $null = ['file', PHP_OS_FAMILY === 'Windows' ? 'NUL' : '/dev/null', 'w'];
        $process = @proc_open([$php, __DIR__ . '/heartbeat_process.php'], [['pipe', 'r'], ['pipe', 'w'], $null], $pipes);
        if (!is_resource($process)) {
            return null;
        }
        stream_set_blocking($pipes[1], false);
        // By its input and not by its arguments: those everybody on the machine can read.
        $orders = ['base' => $wire->base, 'token' => $wire->token, 'path' => $path, 'bodies' => $bodies, 'interval' => $interval];
        @fwrite($pipes[0], json_encode($orders, JSON_THROW_ON_ERROR) . "\n");
        return new self($process, $pipes);
    }

    /**
     * Tells which of the leases are another's by now.
     *
     * @return list<int>
     */
    public function lost(): array
    {
        while (isset($this->pipes[1]) && ($line = fgets($this->pipes[1])) !== false) {
            $this->lost[(int) $line] = true;
        }
        return array_keys($this->lost);
    }

    public function stop(): void
    {
        if ($this->pipes === []) {
            return;
        }
        array_map('fclose', $this->pipes);
        $this->pipes = [];
        proc_terminate($this->process);
        proc_close($this->process);
    }

    public function __destruct()
    {
        $this->stop();
    }

    /**
     * What the second process does.
     *
     * @param resource $input
     */
    public static function run($input): void
    {
        $orders = json_decode((string) fgets($input), true);
        if (!is_array($orders)) {
            return;
        }
        $wire = new Wire($orders['base'], $orders['token'], max(1.0, $orders['interval']));
        $bodies = $orders['bodies'];
        while ($bodies !== []) {
            $whole = (int) $orders['interval'];
            $ready = [$input];
            $none = null;
            $micros = (int) (($orders['interval'] - $whole) * 1_000_000);
            if (stream_select($ready, $none, $none, $whole, $micros) !== 0) {
                return;
            }
            foreach ($bodies as $place => $body) {
                try {
                    $wire->post($orders['path'], $body);
                } catch (Problem $problem) {
                    if ($problem->status === 409) {
                        unset($bodies[$place]);
                        echo "$place\n";
                    }
                } catch (Unreachable) {
                    // The next beat tries again; until another takes over the lease is ours, late or not.
                }
            }
        }
    }
}
