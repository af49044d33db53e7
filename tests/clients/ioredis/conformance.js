// ioredis at a ring: the checks that every client makes, then writes and the checks again while nodes change.
//
// Called with the nodes, HOST:PORT,HOST:PORT,...; the token is in REDISCLI_AUTH. tests/clients/README.md has the protocol.
"use strict";

const assert = require("node:assert/strict");
const Redis = require("ioredis");
const { Later, Turn, isLater } = require("./again");
const load = require("./load");

const NODES = process.argv[2].split(",").map((node) => {
  const [host, port] = node.split(":");
  return { host, port: Number(port) };
});
const TOKEN = process.env.REDISCLI_AUTH;

const connect = (options = {}) => new Redis.Cluster(NODES, { redisOptions: { password: TOKEN, ...options } });

async function refused(call, text) {
  let answer;
  try {
    answer = await call();
  } catch (error) {
    if (error.name === "ReplyError" && text.test(error.message)) return;
    if (isLater(error)) throw error;
    assert.fail(`${error.name}: ${error.message} instead of ${text}`);
  }
  assert.fail(`${answer} instead of ${text}`);
}

// A command may have waited for another node.
async function lives(client, key, seconds, began) {
  const left = await client.ttl(key);
  assert.ok(left > seconds - 10 - (Date.now() - began) / 1_000 && left <= seconds, `${left}`);
}

// The answers of a pipeline; an error in place of one is thrown.
function answers(results) {
  const failed = results.find(([error]) => error !== null);
  if (failed) throw failed[0];
  return results.map(([, answer]) => answer);
}

const count = (length) => Array.from({ length }, (_, number) => number);

const checks = {
  async "set-and-get"(client, turn) {
    const key = turn.key("a");
    assert.equal(await client.get(turn.key("absent")), null);
    assert.equal(await client.set(key, "1"), "OK");
    assert.equal(await client.set(key, "2"), "OK");
    assert.equal(await client.get(key), "2");
  },

  async "set-options"(client, turn) {
    const key = turn.key("o");
    turn.once(await client.set(key, "1", "NX"), "OK", null);
    assert.equal(await client.set(key, "2", "NX"), null);
    assert.equal(await client.set(turn.key("o-absent"), "2", "XX"), null);
    assert.equal(await client.set(key, "3", "XX"), "OK");
    turn.once(await client.getdel(key), "3", null);
    assert.equal(await client.get(key), null);
  },

  async "exists-and-del"(client, turn) {
    const key = turn.key("e");
    await client.set(key, "1");
    assert.equal(await client.exists(key), 1);
    turn.once(await client.del(key), 1, 0);
    assert.equal(await client.exists(key), 0);
    assert.equal(await client.del(key), 0);
  },

  async numbers(client, turn) {
    const key = turn.key("n");
    turn.once(await client.incr(key), 1, 2);
    turn.once(await client.incrby(key, 5), 6, 11);
    turn.once(await client.decrby(key, 2), 4, 2);
    turn.once(await client.append(key, "2"), 2, 3);
    assert.equal(await client.strlen(key), 2);
    assert.equal(await client.get(key), "42");
  },

  async expiry(client, turn) {
    const key = turn.key("x");
    const set = Date.now();
    await client.set(key, "1", "EX", 100);
    await lives(client, key, 100, set);
    turn.once(await client.persist(key), 1, 0);
    assert.equal(await client.ttl(key), -1);
    const expires = Date.now();
    assert.equal(await client.expire(key, 200), 1);
    await lives(client, key, 200, expires);
    turn.once(await client.pexpire(key, 50), 1, 0);
    const until = Date.now() + 10_000;
    while ((await client.get(key)) !== null) assert.ok(Date.now() < until);
    assert.equal(await client.ttl(key), -2);
  },

  async hashes(client, turn) {
    const key = turn.key("h");
    turn.once(await client.hset(key, { x: "1", y: "2" }), 2, 0);
    assert.equal(await client.hset(key, "x", "3"), 0);
    assert.equal(await client.hget(key, "x"), "3");
    assert.equal(await client.hget(key, "z"), null);
    assert.deepEqual({ ...(await client.hgetall(key)) }, { x: "3", y: "2" });
    assert.deepEqual(await client.hmget(key, "y", "z"), ["2", null]);
    assert.equal(await client.hexists(key, "y"), 1);
    assert.equal(await client.hlen(key), 2);
    turn.once(await client.hincrby(key, "x", 4), 7, 11);
    turn.once(await client.hdel(key, "x"), 1, 0);
    assert.deepEqual(await client.hkeys(key), ["y"]);
    assert.equal(await client.type(key), "hash");
  },

  async "several-keys"(client, turn) {
    const [one, two, absent] = [1, 2, 3].map((number) => turn.tagged("t", number));
    assert.equal(await client.mset({ [one]: "1", [two]: "2" }), "OK");
    assert.deepEqual(await client.mget(one, two, absent), ["1", "2", null]);
    assert.equal(await client.exists(one, two, absent), 2);
    turn.once(await client.del(one, two), 2, 0);
  },

  async scan(client, turn) {
    const expected = count(200).map((number) => turn.key(`scan-${number}`));
    for (const key of expected) await client.set(key, "1");
    const found = [];
    for (const node of client.nodes("master")) {
      for await (const keys of node.scanStream({ match: turn.key("scan-*") })) found.push(...keys);
    }
    assert.deepEqual(found.sort(), expected.sort());
  },

  // A pipeline of this client is limited to the slots of one node; keys of one tag share a slot.
  async pipelines(client, turn) {
    const write = client.pipeline();
    for (const number of count(200)) write.set(turn.tagged("pipe", number), number);
    assert.ok(answers(await write.exec()).every((answer) => answer === "OK"));
    const read = client.pipeline();
    for (const number of count(200)) read.get(turn.tagged("pipe", number));
    assert.deepEqual(answers(await read.exec()), count(200).map(String));
  },

  async moved(client, turn) {
    const key = turn.key("moved");
    const slot = Number(await client.cluster("KEYSLOT", key));
    const leader = client.slots[slot]?.[0];
    const node = client.nodes("master").find(({ options }) => `${options.host}:${options.port}` !== leader);
    if (!leader || !node) throw new Later("the client knows of no leader of the slot, or of no other");
    client.slots[slot] = [`${node.options.host}:${node.options.port}`];
    assert.equal(await client.set(key, "1"), "OK");
    assert.equal(await client.get(key), "1");
    assert.equal(client.slots[slot]?.[0], leader);
    const { host, port } = node.options;
    const alone = new Redis({ host, port, password: TOKEN, retryStrategy: null });
    alone.on("error", () => {});
    try {
      await refused(() => alone.get(key), new RegExp(`^MOVED ${slot} ${leader}$`));
    } finally {
      alone.disconnect();
    }
  },

  async "wrong-type"(client, turn) {
    await client.hset(turn.key("w"), "x", "1");
    await refused(() => client.incr(turn.key("w")), /^WRONGTYPE/);
    await client.set(turn.key("no-number"), "x");
    await refused(() => client.incr(turn.key("no-number")), /not an integer/);
  },

  async "syntax-errors"(client, turn) {
    const key = turn.key("s");
    await refused(() => client.set(key, "1", "NOSUCH"), /syntax error/);
    await refused(() => client.call("get", key, "s2"), /wrong number of arguments/);
    const nodes = client.nodes("master");
    await refused(() => nodes[turn.number % nodes.length].call("nosuch", key), /unknown command/);
  },

  async "large-values"(client, turn) {
    const key = turn.key("large");
    const large = Buffer.alloc(4 << 20, Buffer.from(count(256)));
    assert.equal(await client.set(key, large), "OK");
    assert.ok((await client.getBuffer(key)).equals(large));
    turn.once(await client.del(key), 1, 0);
  },

  async "empty-and-binary"(client, turn) {
    const empty = turn.key("empty");
    await client.set(empty, "");
    assert.equal(await client.get(empty), "");
    assert.equal(await client.exists(empty), 1);
    const key = Buffer.concat([Buffer.from(turn.key("")), Buffer.from([0, 255, 13, 10])]);
    const value = Buffer.from("\r\n\0\xff$-1\r\n", "latin1");
    await client.set(key, value);
    assert.ok((await client.getBuffer(key)).equals(value));
  },

  async "wrong-token"(_, turn) {
    const node = NODES[turn.number % NODES.length];
    const alone = new Redis({ ...node, password: "not the token", lazyConnect: true, retryStrategy: null });
    // A node that is gone refuses no token.
    let gone;
    alone.on("error", (error) => {
      if (String(error.code).startsWith("ECONN")) gone = error;
    });
    try {
      await alone.connect();
      await alone.get("a");
    } catch (error) {
      if (gone) throw gone;
      if (isLater(error) && error.message !== "Connection is closed.") throw error;
      assert.match(error.message, /WRONGPASS|NOAUTH|Connection is closed/);
      return;
    } finally {
      alone.disconnect();
    }
    assert.fail("a wrong token was let in");
  },

  async "both-protocols"(client, turn) {
    const key = turn.key("both");
    await client.hset(key, "x", "1");
    for (const protocol of [2, 3]) {
      const other = connect({ protocol });
      other.on("error", () => {});
      try {
        assert.deepEqual({ ...(await other.hgetall(key)) }, { x: "1" });
        assert.equal(await other.get(turn.key("absent")), null);
      } finally {
        other.disconnect();
      }
    }
  },
};

async function main() {
  const [client, other] = [connect(), connect()];
  // Each unreachable node raises this event; what matters here is the effect on commands.
  for (const each of [client, other]) each.on("error", () => {});
  for (const [name, check] of Object.entries(checks)) {
    await check(client, new Turn()).catch((error) => {
      throw new Error(`${name}: ${error.name}: ${error.message.replaceAll("\n", " ")}`);
    });
  }
  const told = await load.run(client, checks, other);
  const { version } = require("ioredis/package.json");
  load.tell({ client: "ioredis", version, checks: Object.keys(checks), ...told });
  client.disconnect();
  other.disconnect();
}

main().catch((error) => {
  console.error(error.message);
  process.exit(1);
});
