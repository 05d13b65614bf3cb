<?php

// A worker that sends each invoice once: php examples/worker.php
declare(strict_types=1);

require __DIR__ . '/../src/autoload.php';

$hapax = new Hapax\Hapax();

foreach ($hapax->pull('shop', max: 10) as $event) {
    try {
        $invoice = fn (): array => ['invoice_for' => $event->json()['id'] ?? null];
        $hapax->once("invoice-{$event->eventId}", $invoice, scope: 'invoices', wait: '30s');
    } catch (Throwable $error) {
        $event->retry(why: $error->getMessage());
    }
}
