// A worker behind NAT: it fetches the events of a channel with mode = "pull", and sends each invoice once.
//
//     HAPAX_SERVER=https://hapax.example HAPAX_TOKEN=... node worker.mjs
import { Hapax } from 'hapax-client';

const hapax = new Hapax();
const stop = new AbortController();
process.once('SIGTERM', () => stop.abort());

for await (const event of hapax.pull('shop', { max: 10, signal: stop.signal })) {
  try {
    await hapax.once(`invoice-${event.eventId}`, () => sendInvoice(event.json()), { scope: 'invoices', wait: '30s' });
  } catch (error) {
    await event.retry({ why: String(error) });
  }
}

async function sendInvoice(order) {
  return { invoiceFor: order.id };
}
