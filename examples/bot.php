<?php
// A WhatsApp bot in plain PHP.
//
// META_APP_SECRET=... php -S 127.0.0.1:3000 examples/bot.php
// hapax listen 3000/webhook

if (parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH) !== '/webhook') {
    http_response_code(404);
    exit;
}
$body = file_get_contents('php://input');
$expected = 'sha256=' . hash_hmac('sha256', $body, getenv('META_APP_SECRET'));
if (!hash_equals($expected, $_SERVER['HTTP_X_HUB_SIGNATURE_256'] ?? '')) {
    http_response_code(401);
    exit;
}
$replies = [];
foreach (json_decode($body, true)['entry'] as $entry) {
    foreach ($entry['changes'] as $change) {
        foreach ($change['value']['messages'] ?? [] as $message) {
            $replies[] = ['text' => 'You said: ' . $message['text']['body']];
        }
    }
}
// hapax sends the replies, once, in the same commit in which it notes that this message is done.
header('Content-Type: application/vnd.hapax.replies+json');
echo json_encode(['replies' => $replies]);
