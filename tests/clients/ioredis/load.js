// Writers, each with keys of its own whose versions only rise, until standard input ends.
"use strict";

const { once } = require("node:events");
const { setTimeout: wait } = require("node:timers/promises");
const again = require("./again");

const WRITERS = 4;
const KEYS = 64;
const UNDER_WAY = 50;
const RETRY_MS = 20;
const RETRY_MS_MAX = 30_000;

function tell(event) {
  process.stdout.write(`${JSON.stringify(event)}\n`);
}

async function retried(call, met) {
  const until = Date.now() + RETRY_MS_MAX;
  for (;;) {
    try {
      return await call();
    } catch (error) {
      const name = `${error.name}: ${error.message}`.slice(0, 80);
      met[name] = (met[name] ?? 0) + 1;
      if (Date.now() > until) throw error;
      await wait(RETRY_MS);
    }
  }
}

async function write(client, writer, ending, onUnderWay, met) {
  const seen = { acknowledged: new Array(KEYS).fill(0), writes: 0, gap: 0, stale: 0 };
  let last = Date.now();
  while (!ending.isOver) {
    const number = seen.writes + 1;
    const key = `load-${writer}-${number % KEYS}`;
    const found = await retried(() => client.get(key), met);
    if (Number(found) !== seen.acknowledged[number % KEYS]) seen.stale += 1;
    await retried(() => client.set(key, number), met);
    seen.acknowledged[number % KEYS] = seen.writes = number;
    const now = Date.now();
    seen.gap = Math.max(seen.gap, now - last);
    last = now;
    if (number === UNDER_WAY) onUnderWay();
  }
  return seen;
}

async function lost(client, writer, acknowledged, met) {
  let count = 0;
  for (const [at, version] of acknowledged.entries()) {
    if (version === 0) continue;
    const found = await retried(() => client.get(`load-${writer}-${at}`), met);
    if (Number(found) !== version) count += 1;
  }
  return count;
}

// Runs the writers, and with a client of their own the checks.
async function run(client, checks, other) {
  const ending = { isOver: false };
  const met = {};
  let waiting = WRITERS;
  let checking;
  const onUnderWay = () => {
    waiting -= 1;
    if (waiting > 0) return;
    tell({ under_way: true });
    checking = again.run(checks, other, ending);
    // It is waited for below.
    checking.catch(() => {});
  };
  process.stdin.resume();
  once(process.stdin, "end").then(() => {
    ending.isOver = true;
  });
  const writers = Array.from({ length: WRITERS }, (_, writer) => write(client, writer, ending, onUnderWay, met));
  const seen = await Promise.all(writers);
  const made = await checking;
  const losses = await Promise.all(seen.map(({ acknowledged }, writer) => lost(client, writer, acknowledged, met)));
  const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);
  return {
    acknowledged: sum(seen.map(({ writes }) => writes)),
    lost: sum(losses),
    stale: sum(seen.map(({ stale }) => stale)),
    longest_gap_ms: Math.max(...seen.map(({ gap }) => gap)),
    met: { ...met, ...made.met },
    checks_under_way: made.rounds,
    checks_at_end: made.atEnd,
    sent_twice: made.sentTwice,
  };
}

module.exports = { run, tell };
