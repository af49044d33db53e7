// The checks again and again while nodes come and go, and once more when they have.
"use strict";

const assert = require("node:assert/strict");
const { setTimeout: wait } = require("node:timers/promises");

// By these words a node says that a command may succeed later, or that it does not know its fate.
const LATER = /\b(MOVED|ASK|CLUSTERDOWN|LOADING|TRYAGAIN|NOREPLICAS|UNKNOWN)\b/;
// What the client says when a node is gone.
const GONE = /Connection is closed|Too many Cluster redirections|None of startup nodes|Failed to refresh slots cache/;
const GONE_NAMES = ["MaxRetriesPerRequestError", "ClusterAllFailedError", "AbortError"];
const GONE_CODES = /^(ECONN|EPIPE|ETIMEDOUT)/;
// These checks also depend on which node leads what, and slots may move while they are made.
const OF_LEADERS = ["scan", "moved"];
const ATTEMPTS_MS_MAX = 30_000;
const RETRY_MS = 20;
// Between rounds, so that the writers keep most of the machine.
const PAUSE_MS = 300;
// By then every node has heard who leads a slot now.
const HEARD_MS_MAX = 3_000;

// The check has to begin again: it could not be made with the nodes as they are known.
class Later extends Error {}

// The answer is that to a command which the client sent again after it had been carried out.
class SentTwice extends Error {}

// One attempt at a check. Number 0 is the one before nodes change, which has the plain keys; every other one has keys
// of its own, so that what an interrupted attempt left behind does not confuse the next one.
class Turn {
  // A connection may end while `maySendTwice`. The client then sends a command again by itself, and cannot know
  // whether it was carried out before.
  constructor(number = 0, maySendTwice = false) {
    this.number = number;
    this.maySendTwice = maySendTwice;
  }

  key(name) {
    return this.number === 0 ? name : `again-${this.number}-${name}`;
  }

  // One of the keys of a tag, which share a slot.
  tagged(tag, name) {
    return `{${this.key(tag)}}${name}`;
  }

  // Checks the answer to a command that answers differently, in this known way, when it is carried out twice.
  once(actual, expected, twice) {
    if (this.maySendTwice && actual !== expected && actual === twice) {
      throw new SentTwice(`${actual} instead of ${expected}`);
    }
    assert.equal(actual, expected);
  }
}

// Whether what failed may succeed later: its node is gone or about to be, or its slot moves.
function isLater(error) {
  if (error instanceof Later) return true;
  if (error instanceof assert.AssertionError) return false;
  if (error.name === "ReplyError") return LATER.test(error.message);
  return GONE.test(error.message) || GONE_NAMES.includes(error.name) || GONE_CODES.test(error.code ?? "");
}

// Who leads which slots, as a node says.
async function leaders(client) {
  const slots = await client.cluster("SLOTS");
  return slots.map(([first, last, [host, port]]) => `${first}-${last} ${host}:${port}`).sort().join(" ");
}

// Whether slots have other leaders than before, or get them shortly: a node may not have heard yet.
async function haveChanged(client, before) {
  for (const until = Date.now() + HEARD_MS_MAX; Date.now() < until; await wait(RETRY_MS)) {
    try {
      if ((await leaders(client)) !== before) return true;
    } catch (error) {
      if (!isLater(error)) throw error;
    }
  }
  return false;
}

// Why a check has to begin again, or nothing if it holds.
async function attempt(name, check, client, turn) {
  const isOfLeaders = OF_LEADERS.includes(name);
  let before;
  try {
    if (isOfLeaders) before = await leaders(client);
    await check(client, turn);
  } catch (error) {
    if (error instanceof SentTwice || isLater(error)) return error;
    const isWrong = error instanceof assert.AssertionError;
    if (isWrong && isOfLeaders && (await haveChanged(client, before))) return error;
    throw error;
  }
  return undefined;
}

function described(name, error) {
  return `${name}: ${error.name}: ${error.message.replaceAll("\n", " ")}`;
}

async function make(name, check, client, seen, isLast) {
  const until = Date.now() + ATTEMPTS_MS_MAX;
  for (;;) {
    seen.attempts += 1;
    const why = await attempt(name, check, client, new Turn(seen.attempts, !isLast)).catch((error) => {
      throw new Error(`while nodes changed: ${described(name, error)}`);
    });
    if (why === undefined) return;
    if (why instanceof SentTwice) seen.sentTwice += 1;
    const met = described(name, why).slice(0, 80);
    seen.met[met] = (seen.met[met] ?? 0) + 1;
    if (Date.now() > until) throw new Error(`while nodes changed: not made in 30 s: ${described(name, why)}`);
    await wait(RETRY_MS);
  }
}

// Makes rounds of checks until it is over, and then one more.
async function run(checks, client, ending) {
  const seen = { attempts: 0, rounds: 0, sentTwice: 0, atEnd: [], met: {} };
  for (let isLast = false; !isLast; ) {
    isLast = ending.isOver;
    const made = [];
    for (const [name, check] of Object.entries(checks)) {
      await make(name, check, client, seen, isLast);
      made.push(name);
    }
    seen.atEnd = made;
    seen.rounds += 1;
    if (!isLast) await wait(PAUSE_MS);
  }
  return seen;
}

module.exports = { Later, Turn, isLater, run };
