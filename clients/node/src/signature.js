import { createHmac, timingSafeEqual } from 'node:crypto';

import { BadSignature } from './errors.js';

/** Checks the Standard Webhooks headers that `sign_with` of a channel adds, and returns the event's id. */
export function verify(body, headers, secret, { tolerance = 300, now = Date.now() / 1000 } = {}) {
  const id = header(headers, 'webhook-id');
  const signedAt = header(headers, 'webhook-timestamp');
  const signatures = header(headers, 'webhook-signature').split(' ');
  if (!/^\d{1,15}$/.test(signedAt)) throw new BadSignature('the header webhook-timestamp is no number');
  if (Math.abs(now - Number(signedAt)) > tolerance) {
    throw new BadSignature('the request was signed too long ago, or one of the clocks is wrong');
  }
  const given = signatures.filter((one) => one.startsWith('v1,')).map((one) => Buffer.from(one.slice(3), 'base64'));
  for (const one of [secret].flat()) {
    const mac = createHmac('sha256', keyOf(one)).update(`${id}.${signedAt}.`).update(body).digest();
    if (given.some((candidate) => candidate.length === mac.length && timingSafeEqual(candidate, mac))) return id;
  }
  throw new BadSignature('no signature fits');
}

/** From a `Headers`, or from the plain object of node:http, whose names are in small letters. */
function header(headers, name) {
  const found = typeof headers.get === 'function' ? headers.get(name) : lookUp(headers, name);
  if (typeof found !== 'string' || found === '') throw new BadSignature(`the header ${name} is missing`);
  return found;
}

function lookUp(headers, name) {
  return headers[name] ?? Object.entries(headers).find(([key]) => key.toLowerCase() === name)?.[1];
}

/** A secret that starts with `whsec_` holds its key in base64; any other is the key. */
function keyOf(secret) {
  const encoded = secret.startsWith('whsec_') ? secret.slice('whsec_'.length) : null;
  const isBase64 = encoded !== null && encoded.length % 4 === 0 && /^[A-Za-z0-9+/]*={0,2}$/.test(encoded);
  return isBase64 ? Buffer.from(encoded, 'base64') : Buffer.from(secret);
}
