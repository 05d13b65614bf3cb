// What the bots on Node share: what they answer, what they write down, and how they are made to die. bot.py has the words.

import { appendFileSync, existsSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { setTimeout as sleep } from "node:timers/promises";

export const { HAPAX, PORT, SECRET, JOURNAL } = process.env;
/** From the folder that tests/install-clients.sh has filled. */
export const library = createRequire(`${process.env.LIBRARIES}/`);

export function* answers(text) {
  for (const number of [1, 2, 3]) {
    const words = `${text}: ${number} of 3`;
    yield existsSync(`${JOURNAL}.reword`) ? `${words} ${Math.floor(Math.random() * 1e9)}` : words;
  }
}

function writeDown(...row) {
  appendFileSync(JOURNAL, JSON.stringify(row) + "\n");
}

export function failed(error) {
  writeDown("failed", String(error));
}

/** To be called after each send. */
export async function sent(text, messageId) {
  writeDown(text, messageId);
  if (existsSync(`${JOURNAL}.die`)) {
    rmSync(`${JOURNAL}.die`);
    process.kill(process.pid, "SIGKILL");
  }
  while (existsSync(`${JOURNAL}.wait`)) {
    await sleep(10);
  }
}

export function together() {
  return existsSync(`${JOURNAL}.together`);
}

export function ready() {
  console.log("ready");
}
