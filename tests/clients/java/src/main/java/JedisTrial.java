// Jedis at a ring: the checks that every client makes, then writes and the checks again while nodes change.
//
// Called with the nodes, HOST:PORT,HOST:PORT,...; the token is in REDISCLI_AUTH. tests/clients/README.md has the protocol.

import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import redis.clients.jedis.ClusterPipeline;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.Connection;
import redis.clients.jedis.ConnectionPool;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisClientConfig;
import redis.clients.jedis.Protocol;
import redis.clients.jedis.RedisClusterClient;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.exceptions.JedisAccessControlException;
import redis.clients.jedis.exceptions.JedisClusterOperationException;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.exceptions.JedisException;
import redis.clients.jedis.exceptions.JedisMovedDataException;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;
import redis.clients.jedis.providers.ClusterConnectionProvider;
import redis.clients.jedis.resps.ScanResult;
import redis.clients.jedis.util.JedisClusterCRC16;

final class JedisTrial {
    private static final String TOKEN = System.getenv("REDISCLI_AUTH");

    private final Set<HostAndPort> nodes;
    private final RedisClusterClient client;

    private JedisTrial(String nodes) {
        this.nodes = Arrays.stream(nodes.split(",")).map(HostAndPort::from).collect(Collectors.toSet());
        this.client = RedisClusterClient.builder().nodes(this.nodes).clientConfig(config().build()).build();
    }

    public static void main(String[] arguments) throws Exception {
        JedisTrial trial = new JedisTrial(arguments[0]);
        Cells cells = new Cells() {
            @Override
            public void set(String key, String value) {
                Trial.same(trial.client.set(key, value), "OK");
            }

            @Override
            public String get(String key) {
                return trial.client.get(key);
            }
        };
        JedisTrial other = new JedisTrial(arguments[0]);
        Again again = new Again(other.checks(), JedisTrial::isGone, other::leaders);
        Trial.run("Jedis", Trial.version(Jedis.class, "redis.clients/jedis"), trial.checks(), cells, again);
    }

    /** Whether what failed may succeed later: its node is gone or about to be, or its slot moves. */
    private static boolean isGone(Throwable error) {
        return error instanceof JedisConnectionException || error instanceof JedisClusterOperationException
            || error instanceof JedisDataException && Again.LATER.matcher(String.valueOf(error.getMessage())).find();
    }

    /** Who leads which slots, as the first node says that answers. */
    private List<String> leaders() {
        for (ConnectionPool pool : client.getClusterNodes().values()) {
            try (Jedis node = new Jedis(pool.getResource())) {
                return Again.leaders(node.clusterNodes());
            } catch (JedisException error) {
                continue;
            }
        }
        throw new Later("no node says who leads what");
    }

    private static DefaultJedisClientConfig.Builder config() {
        return DefaultJedisClientConfig.builder().password(TOKEN);
    }

    private Map<String, Check> checks() {
        Map<String, Check> checks = new LinkedHashMap<>();
        checks.put("set-and-get", this::setAndGet);
        checks.put("set-options", this::setOptions);
        checks.put("exists-and-del", this::existsAndDel);
        checks.put("numbers", this::numbers);
        checks.put("expiry", this::expiry);
        checks.put("hashes", this::hashes);
        checks.put("several-keys", this::severalKeys);
        checks.put("scan", this::scan);
        checks.put("pipelines", this::pipelines);
        checks.put("moved", this::moved);
        checks.put("wrong-type", this::wrongType);
        checks.put("syntax-errors", this::syntaxErrors);
        checks.put("large-values", this::largeValues);
        checks.put("empty-and-binary", this::emptyAndBinary);
        checks.put("wrong-token", this::wrongToken);
        checks.put("both-protocols", this::bothProtocols);
        return checks;
    }

    private void setAndGet(Turn turn) {
        String key = turn.key("a");
        Trial.same(client.get(turn.key("absent")), null);
        Trial.same(client.set(key, "1"), "OK");
        Trial.same(client.set(key, "2"), "OK");
        Trial.same(client.get(key), "2");
    }

    private void setOptions(Turn turn) {
        String key = turn.key("o");
        turn.once(client.set(key, "1", SetParams.setParams().nx()), "OK", null);
        Trial.same(client.set(key, "2", SetParams.setParams().nx()), null);
        Trial.same(client.set(turn.key("o-absent"), "2", SetParams.setParams().xx()), null);
        Trial.same(client.set(key, "3", SetParams.setParams().xx()), "OK");
        turn.once(client.getDel(key), "3", null);
        Trial.same(client.get(key), null);
    }

    private void existsAndDel(Turn turn) {
        String key = turn.key("e");
        client.set(key, "1");
        Trial.same(client.exists(key), true);
        turn.once(client.del(key), 1L, 0L);
        Trial.same(client.exists(key), false);
        Trial.same(client.del(key), 0L);
    }

    private void numbers(Turn turn) {
        String key = turn.key("n");
        turn.once(client.incr(key), 1L, 2L);
        turn.once(client.incrBy(key, 5), 6L, 11L);
        turn.once(client.decrBy(key, 2), 4L, 2L);
        turn.once(client.append(key, "2"), 2L, 3L);
        Trial.same(client.strlen(key), 2L);
        Trial.same(client.get(key), "42");
    }

    private void expiry(Turn turn) {
        String key = turn.key("x");
        long setAt = System.currentTimeMillis();
        client.set(key, "1", SetParams.setParams().ex(100));
        Trial.lives(client.ttl(key), 100, setAt);
        turn.once(client.persist(key), 1L, 0L);
        Trial.same(client.ttl(key), -1L);
        long expiresAt = System.currentTimeMillis();
        Trial.same(client.expire(key, 200), 1L);
        Trial.lives(client.ttl(key), 200, expiresAt);
        turn.once(client.pexpire(key, 50), 1L, 0L);
        long until = System.currentTimeMillis() + 10_000;
        while (client.get(key) != null) {
            Trial.same(System.currentTimeMillis() < until, true);
        }
        Trial.same(client.ttl(key), -2L);
    }

    private void hashes(Turn turn) {
        String key = turn.key("h");
        turn.once(client.hset(key, Map.of("x", "1", "y", "2")), 2L, 0L);
        Trial.same(client.hset(key, "x", "3"), 0L);
        Trial.same(client.hget(key, "x"), "3");
        Trial.same(client.hget(key, "z"), null);
        Trial.same(client.hgetAll(key), Map.of("x", "3", "y", "2"));
        Trial.same(client.hmget(key, "y", "z"), Arrays.asList("2", null));
        Trial.same(client.hexists(key, "y"), true);
        Trial.same(client.hlen(key), 2L);
        turn.once(client.hincrBy(key, "x", 4), 7L, 11L);
        turn.once(client.hdel(key, "x"), 1L, 0L);
        Trial.same(client.hkeys(key), Set.of("y"));
        Trial.same(client.type(key), "hash");
    }

    private void severalKeys(Turn turn) {
        String one = turn.tagged("t", 1);
        String two = turn.tagged("t", 2);
        String absent = turn.tagged("t", 3);
        Trial.same(client.mset(one, "1", two, "2"), "OK");
        Trial.same(client.mget(one, two, absent), Arrays.asList("1", "2", null));
        Trial.same(client.exists(one, two, absent), 2L);
        turn.once(client.del(one, two), 2L, 0L);
    }

    private void scan(Turn turn) {
        Set<String> expected = new TreeSet<>();
        for (int number = 0; number < 200; number++) {
            client.set(turn.key("scan-" + number), "1");
            expected.add(turn.key("scan-" + number));
        }
        ScanParams ours = new ScanParams().match(turn.key("scan-*"));
        List<String> found = new ArrayList<>();
        for (String address : Again.addresses(leaders())) {
            ConnectionPool pool = client.getClusterNodes().get(address);
            if (pool == null) {
                throw new Later("the client does not know " + address);
            }
            try (Jedis node = new Jedis(pool.getResource())) {
                ScanResult<String> page = node.scan("0", ours);
                found.addAll(page.getResult());
                while (!page.isCompleteIteration()) {
                    page = node.scan(page.getCursor(), ours);
                    found.addAll(page.getResult());
                }
            }
        }
        Trial.same(found.size(), 200);
        Trial.same(new TreeSet<>(found), expected);
    }

    private void pipelines(Turn turn) {
        List<Response<String>> written = new ArrayList<>();
        List<Response<String>> read = new ArrayList<>();
        String keys = turn.key("pipe-");
        try (ClusterPipeline pipeline = client.pipelined()) {
            IntStream.range(0, 200).forEach(number -> written.add(pipeline.set(keys + number, "" + number)));
            pipeline.sync();
            IntStream.range(0, 200).forEach(number -> read.add(pipeline.get(keys + number)));
            pipeline.sync();
        }
        for (int number = 0; number < 200; number++) {
            Trial.same(answer(written.get(number)), "OK");
            Trial.same(answer(read.get(number)), "" + number);
        }
    }

    /** A pipeline of which a connection ends leaves its commands without answers, and says so in its own way. */
    private static String answer(Response<String> response) {
        try {
            return response.get();
        } catch (IllegalStateException error) {
            throw new Later(String.valueOf(error.getMessage()));
        }
    }

    /** Sends each command to a wrong node first; the client must follow the redirection that it gets there. */
    private static final class Misled extends ClusterConnectionProvider {
        private final int slot;

        Misled(Set<HostAndPort> nodes, JedisClientConfig config, int slot) {
            super(nodes, config);
            this.slot = slot;
        }

        @Override
        public Connection getConnection(CommandArguments arguments) {
            return getConnection(otherThan(getNode(slot), getNodes().keySet()));
        }
    }

    private static HostAndPort otherThan(HostAndPort leader, Set<String> nodes) {
        if (leader == null) {
            throw new Later("the client knows of no leader of the slot");
        }
        return nodes.stream().filter(node -> !node.equals(leader.toString())).findFirst().map(HostAndPort::from)
            .orElseThrow(() -> new Later("the client knows of one node only"));
    }

    private void moved(Turn turn) {
        String key = turn.key("moved");
        int slot = JedisClusterCRC16.getSlot(key);
        Misled provider = new Misled(nodes, config().build(), slot);
        HostAndPort leader = provider.getNode(slot);
        try (RedisClusterClient misled = RedisClusterClient.builder().nodes(nodes).clientConfig(config().build())
            .connectionProvider(provider).build()) {
            Trial.same(misled.set(key, "1"), "OK");
            Trial.same(misled.get(key), "1");
        }
        HostAndPort other = otherThan(leader, client.getClusterNodes().keySet());
        try (Jedis node = new Jedis(other, config().build())) {
            Trial.refused(JedisMovedDataException.class, leader.toString(), () -> node.get(key));
        }
    }

    private void wrongType(Turn turn) {
        String hash = turn.key("w");
        String word = turn.key("no-number");
        client.hset(hash, "x", "1");
        Trial.refused(JedisDataException.class, "WRONGTYPE", () -> client.incr(hash));
        client.set(word, "x");
        Trial.refused(JedisDataException.class, "not an integer", () -> client.incr(word));
    }

    private void syntaxErrors(Turn turn) {
        String key = turn.key("s");
        Trial.refused(JedisDataException.class, "syntax error",
            () -> client.sendCommand(key, Protocol.Command.SET, key, "1", "NOSUCH"));
        Trial.refused(JedisDataException.class, "wrong number of arguments",
            () -> client.sendCommand(key, Protocol.Command.GET, key, "s2"));
        Trial.refused(JedisDataException.class, "unknown command",
            () -> client.sendCommand(key, () -> "NOSUCH".getBytes(), key));
    }

    private void largeValues(Turn turn) {
        byte[] key = turn.key("large").getBytes();
        byte[] large = new byte[4 << 20];
        for (int at = 0; at < large.length; at++) {
            large[at] = (byte) at;
        }
        Trial.same(client.set(key, large), "OK");
        Trial.same(client.get(key), large);
        turn.once(client.del(key), 1L, 0L);
    }

    private void emptyAndBinary(Turn turn) {
        String empty = turn.key("empty");
        client.set(empty, "");
        Trial.same(client.get(empty), "");
        Trial.same(client.exists(empty), true);
        byte[] key = Trial.joined(turn.key(""), new byte[] {0, (byte) 255, '\r', '\n'});
        byte[] value = {'\r', '\n', 0, (byte) 255, '$', '-', '1', '\r', '\n'};
        client.set(key, value);
        Trial.same(client.get(key), value);
    }

    private void wrongToken(Turn turn) {
        JedisClientConfig config = DefaultJedisClientConfig.builder().password("not the token").build();
        HostAndPort one = List.copyOf(nodes).get(turn.number() % nodes.size());
        Trial.refused(JedisAccessControlException.class, "WRONGPASS", () -> {
            try (Jedis node = new Jedis(one, config)) {
                node.ping();
            }
        });
    }

    private void bothProtocols(Turn turn) {
        String key = turn.key("both");
        client.hset(key, "x", "1");
        for (RedisProtocol protocol : List.of(RedisProtocol.RESP2, RedisProtocol.RESP3)) {
            JedisClientConfig config = config().protocol(protocol).build();
            try (RedisClusterClient other = RedisClusterClient.builder().nodes(nodes).clientConfig(config).build()) {
                Trial.same(other.hgetAll(key), Map.of("x", "1"));
                Trial.same(other.get(turn.key("absent")), null);
            }
        }
    }
}
