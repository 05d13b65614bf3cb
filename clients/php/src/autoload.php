<?php

// For programs without Composer: require this file.

declare(strict_types=1);

foreach (['Errors', 'Wire', 'Heartbeat', 'Claim', 'Event', 'Signature', 'Hapax'] as $file) {
    require_once __DIR__ . "/$file.php";
}
