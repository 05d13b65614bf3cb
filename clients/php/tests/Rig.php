<?php

declare(strict_types=1);

final class Skipped extends Exception
{
}

/** A running hapax: its address and token are in HAPAX_SERVER and HAPAX_TOKEN. */
final class Rig
{
    private const PATIENCE_S = 30.0;

    public static function server(): string
    {
        return getenv('HAPAX_SERVER') ?: throw new Skipped('no hapax: set HAPAX_SERVER and HAPAX_TOKEN');
    }

    public static function hapax(): Hapax\Hapax
    {
        return new Hapax\Hapax(self::server());
    }

    public static function newKey(): string
    {
        return 'php-' . bin2hex(random_bytes(16));
    }

    /** Looks again and again until there is something; for what the server does in its own time. */
    public static function eventually(callable $look): mixed
    {
        $until = microtime(true) + self::PATIENCE_S;
        while (microtime(true) < $until) {
            if ($found = $look()) {
                return $found;
            }
            usleep(20_000);
        }
        throw new Exception('it did not happen');
    }

    /** A claim as the server lists it. */
    public static function stored(string $key): array
    {
        $context = stream_context_create(['http' => ['header' => 'Authorization: Bearer ' . getenv('HAPAX_TOKEN')]]);
        $url = self::server() . '/v1/claims?' . http_build_query(['key' => $key]);
        $items = json_decode(file_get_contents($url, false, $context), true)['items'];
        return array_values(array_filter($items, static fn (array $row): bool => $row['key'] === $key))[0];
    }

    /**
     * A server that answers every request with this program; its process and its address.
     *
     * @return array{resource, string}
     */
    public static function serve(string $code): array
    {
        $free = stream_socket_server('tcp://127.0.0.1:0');
        $address = stream_socket_get_name($free, false);
        fclose($free);
        $router = tempnam(sys_get_temp_dir(), 'hapax');
        file_put_contents($router, $code);
        $null = ['file', '/dev/null', 'w'];
        $process = proc_open([PHP_BINARY, '-S', $address, $router], [['file', '/dev/null', 'r'], $null, $null], $pipes);
        self::eventually(static fn (): bool => @fsockopen("tcp://$address") !== false);
        return [$process, "http://$address"];
    }

    /** Runs a program that uses the client, in a process of its own. */
    public static function start(string $code, string ...$arguments): mixed
    {
        $code = 'require ' . var_export(__DIR__ . '/../src/autoload.php', true) . '; ' . $code;
        $process = proc_open([PHP_BINARY, '-r', $code, '--', ...$arguments], [1 => ['pipe', 'w']], $pipes);
        return [$process, $pipes[1]];
    }

    public static function same(mixed $expected, mixed $found): void
    {
        if ($expected !== $found) {
            throw new Exception('expected ' . var_export($expected, true) . ', found ' . var_export($found, true));
        }
    }

    public static function throws(string $class, callable $call): Throwable
    {
        try {
            $call();
        } catch (Throwable $error) {
            return $error instanceof $class ? $error : throw $error;
        }
        throw new Exception("expected $class, and nothing was thrown");
    }
}
