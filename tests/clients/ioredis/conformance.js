// ioredis at a ring: the checks that every client makes, then writes while the nodes change.
//
// Called with the nodes, HOST:PORT,HOST:PORT,...; the token is in REDISCLI_AUTH. tests/clients/README.md has the protocol.
"use strict";

const assert = require("node:assert/strict");
const Redis = require("ioredis");
const load = require("./load");

const NODES = process.argv[2].split(",").map((node) => {
  const [host, port] = node.split(":");
  return { host, port: Number(port) };
});
const TOKEN = process.env.REDISCLI_AUTH;

const connect = (options = {}) => new Redis.Cluster(NODES, { redisOptions: { password: TOKEN, ...options } });

const refused = (call, text) =>
  assert.rejects(call, (error) => {
    assert.equal(error.name, "ReplyError");
    assert.match(error.message, text);
    return true;
  });

const count = (length) => Array.from({ length }, (_, number) => number);

const checks = {
  async "set-and-get"(client) {
    assert.equal(await client.get("absent"), null);
    assert.equal(await client.set("a", "1"), "OK");
    assert.equal(await client.set("a", "2"), "OK");
    assert.equal(await client.get("a"), "2");
  },

  async "set-options"(client) {
    assert.equal(await client.set("o", "1", "NX"), "OK");
    assert.equal(await client.set("o", "2", "NX"), null);
    assert.equal(await client.set("o-absent", "2", "XX"), null);
    assert.equal(await client.set("o", "3", "XX"), "OK");
    assert.equal(await client.getdel("o"), "3");
    assert.equal(await client.get("o"), null);
  },

  async "exists-and-del"(client) {
    await client.set("e", "1");
    assert.equal(await client.exists("e"), 1);
    assert.equal(await client.del("e"), 1);
    assert.equal(await client.exists("e"), 0);
    assert.equal(await client.del("e"), 0);
  },

  async numbers(client) {
    assert.equal(await client.incr("n"), 1);
    assert.equal(await client.incrby("n", 5), 6);
    assert.equal(await client.decrby("n", 2), 4);
    assert.equal(await client.append("n", "2"), 2);
    assert.equal(await client.strlen("n"), 2);
    assert.equal(await client.get("n"), "42");
  },

  async expiry(client) {
    await client.set("x", "1", "EX", 100);
    const first = await client.ttl("x");
    assert.ok(first > 90 && first <= 100, `${first}`);
    assert.equal(await client.persist("x"), 1);
    assert.equal(await client.ttl("x"), -1);
    assert.equal(await client.expire("x", 200), 1);
    const second = await client.ttl("x");
    assert.ok(second > 190 && second <= 200, `${second}`);
    assert.equal(await client.pexpire("x", 50), 1);
    const until = Date.now() + 10_000;
    while ((await client.get("x")) !== null) assert.ok(Date.now() < until);
    assert.equal(await client.ttl("x"), -2);
  },

  async hashes(client) {
    assert.equal(await client.hset("h", { x: "1", y: "2" }), 2);
    assert.equal(await client.hset("h", "x", "3"), 0);
    assert.equal(await client.hget("h", "x"), "3");
    assert.equal(await client.hget("h", "z"), null);
    assert.deepEqual({ ...(await client.hgetall("h")) }, { x: "3", y: "2" });
    assert.deepEqual(await client.hmget("h", "y", "z"), ["2", null]);
    assert.equal(await client.hexists("h", "y"), 1);
    assert.equal(await client.hlen("h"), 2);
    assert.equal(await client.hincrby("h", "x", 4), 7);
    assert.equal(await client.hdel("h", "x"), 1);
    assert.deepEqual(await client.hkeys("h"), ["y"]);
    assert.equal(await client.type("h"), "hash");
  },

  async "several-keys"(client) {
    assert.equal(await client.mset({ "{t}1": "1", "{t}2": "2" }), "OK");
    assert.deepEqual(await client.mget("{t}1", "{t}2", "{t}3"), ["1", "2", null]);
    assert.equal(await client.exists("{t}1", "{t}2", "{t}3"), 2);
    assert.equal(await client.del("{t}1", "{t}2"), 2);
  },

  async scan(client) {
    const expected = count(200).map((number) => `scan-${number}`);
    for (const key of expected) await client.set(key, "1");
    const found = [];
    for (const node of client.nodes("master")) {
      for await (const keys of node.scanStream({ match: "scan-*" })) found.push(...keys);
    }
    assert.deepEqual(found.sort(), expected.sort());
  },

  // A pipeline of this client is limited to the slots of one node; keys of one tag share a slot.
  async pipelines(client) {
    const write = client.pipeline();
    for (const number of count(200)) write.set(`{pipe}${number}`, number);
    assert.ok((await write.exec()).every(([error, answer]) => error === null && answer === "OK"));
    const read = client.pipeline();
    for (const number of count(200)) read.get(`{pipe}${number}`);
    assert.deepEqual((await read.exec()).map(([, answer]) => answer), count(200).map(String));
  },

  async moved(client) {
    const slot = Number(await client.cluster("KEYSLOT", "moved"));
    const leader = client.slots[slot][0];
    const node = client.nodes("master").find(({ options }) => `${options.host}:${options.port}` !== leader);
    client.slots[slot] = [`${node.options.host}:${node.options.port}`];
    assert.equal(await client.set("moved", "1"), "OK");
    assert.equal(await client.get("moved"), "1");
    assert.equal(client.slots[slot][0], leader);
    const { host, port } = node.options;
    const alone = new Redis({ host, port, password: TOKEN });
    await refused(() => alone.get("moved"), new RegExp(`^MOVED ${slot} ${leader}$`));
    alone.disconnect();
  },

  async "wrong-type"(client) {
    await client.hset("w", "x", "1");
    await refused(() => client.incr("w"), /^WRONGTYPE/);
    await client.set("no-number", "x");
    await refused(() => client.incr("no-number"), /not an integer/);
  },

  async "syntax-errors"(client) {
    await refused(() => client.set("s", "1", "NOSUCH"), /syntax error/);
    await refused(() => client.call("get", "s", "s2"), /wrong number of arguments/);
    await refused(() => client.nodes("master")[0].call("nosuch", "s"), /unknown command/);
  },

  async "large-values"(client) {
    const large = Buffer.alloc(4 << 20, Buffer.from(count(256)));
    assert.equal(await client.set("large", large), "OK");
    assert.ok((await client.getBuffer("large")).equals(large));
  },

  async "empty-and-binary"(client) {
    await client.set("empty", "");
    assert.equal(await client.get("empty"), "");
    assert.equal(await client.exists("empty"), 1);
    const key = Buffer.from([0, 255, 13, 10]);
    const value = Buffer.from("\r\n\0\xff$-1\r\n", "latin1");
    await client.set(key, value);
    assert.ok((await client.getBuffer(key)).equals(value));
  },

  async "wrong-token"() {
    const alone = new Redis({ ...NODES[0], password: "not the token", lazyConnect: true, retryStrategy: null });
    alone.on("error", () => {});
    await assert.rejects(async () => {
      await alone.connect();
      await alone.get("a");
    }, /WRONGPASS|NOAUTH|Connection is closed/);
    alone.disconnect();
  },

  async "both-protocols"(client) {
    await client.hset("both", "x", "1");
    for (const protocol of [2, 3]) {
      const other = connect({ protocol });
      assert.deepEqual({ ...(await other.hgetall("both")) }, { x: "1" });
      assert.equal(await other.get("absent"), null);
      other.disconnect();
    }
  },
};

async function main() {
  const client = connect();
  // Each unreachable node raises this event; what matters here is the effect on writes.
  client.on("error", () => {});
  for (const [name, check] of Object.entries(checks)) {
    await check(client).catch((error) => {
      throw new Error(`${name}: ${error.name}: ${error.message.replaceAll("\n", " ")}`);
    });
  }
  const told = await load.run(client);
  const { version } = require("ioredis/package.json");
  load.tell({ client: "ioredis", version, checks: Object.keys(checks), ...told });
  client.disconnect();
}

main().catch((error) => {
  console.error(error.message);
  process.exit(1);
});
