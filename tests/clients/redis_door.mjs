// What programs do with ioredis and redlock. Prints one JSON object.

import { createRequire } from "node:module";

const libraries = createRequire(`${process.env.LIBRARIES}/`);
const { Redis } = libraries("ioredis");
const Redlock = libraries("redlock").default;

const port = Number(process.env.PORTS.split(",")[0]);
const door = new Redis({ host: "127.0.0.1", port, password: process.env.TOKEN, maxRetriesPerRequest: 1 });

const said = {};
said.first = await door.set("io", "a", "EX", 60, "NX");
said.second = await door.set("io", "b", "EX", 60, "NX");
said.get = await door.get("io");
said.pipeline = await door.pipeline().get("io").ttl("nothing").del("io").exec();
said.setex = await door.setex("io", 10, "c");
said.buffer = (await door.getBuffer("io")).toString();

door.defineCommand("releaseIfMine", {
  numberOfKeys: 1,
  lua: "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end",
});
said.notMine = await door.releaseIfMine("io", "x");
said.mine = await door.releaseIfMine("io", "c");
said.unknown = await door.eval("return redis.call('INCR', KEYS[1])", 1, "n").catch((error) => error.message.split(" ")[0]);

const redlock = new Redlock([door], { retryCount: 0 });
let lock = await redlock.acquire(["one", "two"], 10_000);
said.taken = await redlock.acquire(["two"], 10_000).then(
  () => "twice",
  () => "once",
);
lock = await lock.extend(20_000);
said.extended = (await door.pttl("two")) > 10_000;
// Of two keys one is free: neither is taken.
said.half = await redlock.acquire(["three", "two"], 10_000).then(
  () => "both",
  () => "none",
);
said.three = await door.exists("three");
await lock.release();
said.released = await door.exists("one", "two");

console.log(JSON.stringify(said));
await door.quit();
