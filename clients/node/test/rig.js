// A running hapax: its address and token are in HAPAX_SERVER and HAPAX_TOKEN.
import { randomUUID } from 'node:crypto';

export const SERVER = process.env.HAPAX_SERVER;
export const needsServer = { skip: SERVER ? false : 'no hapax: set HAPAX_SERVER and HAPAX_TOKEN' };
const PATIENCE_MS = 30_000;

export const newKey = () => `node-${randomUUID()}`;

/** Looks again and again until there is something; for what the server does in its own time. */
export async function eventually(look) {
  const until = Date.now() + PATIENCE_MS;
  while (Date.now() < until) {
    const found = await look();
    if (found) return found;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  throw new Error('it did not happen');
}

/** A claim as the server lists it. */
export async function stored(key) {
  const headers = { authorization: `Bearer ${process.env.HAPAX_TOKEN}` };
  const answer = await fetch(`${SERVER}/v1/claims?${new URLSearchParams({ key })}`, { headers });
  return (await answer.json()).items.find((row) => row.key === key);
}
