<?php

declare(strict_types=1);

use Hapax\Problem;

/** The test's hapax has six messages waiting, each of a person of its own. */
final class PullTest
{
    public function testEventsComeUntilTheyAreDone(): void
    {
        [$hapax, $channel, $ids] = [Rig::hapax(), self::channel(), []];
        foreach ($hapax->pull($channel, max: 2, wait: 0, forever: false) as $event) {
            Rig::same(1, $event->attempt);
            Rig::same(true, is_array($event->json()));
            $ids[] = $event->eventId;
            if (count($ids) === 3) {
                $event->done();
                break;
            }
        }
        unset($event);
        gc_collect_cycles();
        Rig::throws(DomainException::class, function () use ($hapax, $channel, $ids): void {
            foreach ($hapax->pull($channel, max: 2, wait: 0, forever: false) as $event) {
                Rig::same(false, in_array($event->eventId, $ids, true));
                $event->retry(after: 0, why: 'not now');
                throw new DomainException();
            }
        });
        $attempts = [];
        foreach ($hapax->pull($channel, max: 10, wait: '2s', forever: false) as $event) {
            Rig::same(false, in_array($event->eventId, $ids, true));
            Rig::same(true, isset($event->headers['hapax-event-id']));
            $attempts[] = $event->attempt;
        }
        Rig::same(3, count($attempts));
        Rig::same(true, in_array(2, $attempts, true));
    }

    public function testAChannelThatIsNotThere(): void
    {
        $hapax = Rig::hapax();
        self::channel();
        Rig::throws(Problem::class, fn () => $hapax->pull('no-such-channel', wait: 0)->current());
    }

    private static function channel(): string
    {
        return getenv('HAPAX_PULL_CHANNEL') ?: throw new Skipped('no channel to pull from: HAPAX_PULL_CHANNEL names none');
    }
}
