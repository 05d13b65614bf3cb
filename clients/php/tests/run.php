<?php

// A runner in one file: every public method of the classes below whose name starts with `test`, or of those whose names are given
// (`php tests/run.php PullTest`). Exits with 1 when one fails.

declare(strict_types=1);

require __DIR__ . '/../src/autoload.php';
require __DIR__ . '/Rig.php';
require __DIR__ . '/SignatureTest.php';
require __DIR__ . '/ClaimsTest.php';
require __DIR__ . '/PullTest.php';

set_error_handler(static function (int $kind, string $message, string $file, int $line): bool {
    if ((error_reporting() & $kind) === 0) {
        return false;
    }
    throw new ErrorException($message, 0, $kind, $file, $line);
});

$counts = ['passed' => 0, 'failed' => 0, 'skipped' => 0];
$classes = array_slice($argv, 1) ?: [SignatureTest::class, ClaimsTest::class, PullTest::class];
foreach ($classes as $class) {
    foreach (preg_grep('/^test/', get_class_methods($class)) as $method) {
        try {
            (new $class())->$method();
            [$word, $why] = ['passed', ''];
        } catch (Skipped $skipped) {
            [$word, $why] = ['skipped', ": {$skipped->getMessage()}"];
        } catch (Throwable $error) {
            [$word, $why] = ['failed', ": $error"];
        }
        $counts[$word] += 1;
        echo "$class::$method $word$why\n";
    }
}
echo implode(', ', array_map(static fn (string $word): string => "{$counts[$word]} $word", array_keys($counts))), "\n";
exit($counts['failed'] > 0 ? 1 : 0);
