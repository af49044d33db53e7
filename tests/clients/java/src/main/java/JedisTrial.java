// Jedis at a ring: the checks that every client makes, then writes while the nodes change.
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
import redis.clients.jedis.exceptions.JedisDataException;
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
        Trial.run("Jedis", Trial.version(Jedis.class, "redis.clients/jedis"), trial.checks(), cells);
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

    private void setAndGet() {
        Trial.same(client.get("absent"), null);
        Trial.same(client.set("a", "1"), "OK");
        Trial.same(client.set("a", "2"), "OK");
        Trial.same(client.get("a"), "2");
    }

    private void setOptions() {
        Trial.same(client.set("o", "1", SetParams.setParams().nx()), "OK");
        Trial.same(client.set("o", "2", SetParams.setParams().nx()), null);
        Trial.same(client.set("o-absent", "2", SetParams.setParams().xx()), null);
        Trial.same(client.set("o", "3", SetParams.setParams().xx()), "OK");
        Trial.same(client.getDel("o"), "3");
        Trial.same(client.get("o"), null);
    }

    private void existsAndDel() {
        client.set("e", "1");
        Trial.same(client.exists("e"), true);
        Trial.same(client.del("e"), 1L);
        Trial.same(client.exists("e"), false);
        Trial.same(client.del("e"), 0L);
    }

    private void numbers() {
        Trial.same(client.incr("n"), 1L);
        Trial.same(client.incrBy("n", 5), 6L);
        Trial.same(client.decrBy("n", 2), 4L);
        Trial.same(client.append("n", "2"), 2L);
        Trial.same(client.strlen("n"), 2L);
        Trial.same(client.get("n"), "42");
    }

    private void expiry() {
        client.set("x", "1", SetParams.setParams().ex(100));
        lives(90, 100);
        Trial.same(client.persist("x"), 1L);
        Trial.same(client.ttl("x"), -1L);
        Trial.same(client.expire("x", 200), 1L);
        lives(190, 200);
        Trial.same(client.pexpire("x", 50), 1L);
        long until = System.currentTimeMillis() + 10_000;
        while (client.get("x") != null) {
            Trial.same(System.currentTimeMillis() < until, true);
        }
        Trial.same(client.ttl("x"), -2L);
    }

    private void lives(long from, long to) {
        long left = client.ttl("x");
        Trial.same(from < left && left <= to, true);
    }

    private void hashes() {
        Trial.same(client.hset("h", Map.of("x", "1", "y", "2")), 2L);
        Trial.same(client.hset("h", "x", "3"), 0L);
        Trial.same(client.hget("h", "x"), "3");
        Trial.same(client.hget("h", "z"), null);
        Trial.same(client.hgetAll("h"), Map.of("x", "3", "y", "2"));
        Trial.same(client.hmget("h", "y", "z"), Arrays.asList("2", null));
        Trial.same(client.hexists("h", "y"), true);
        Trial.same(client.hlen("h"), 2L);
        Trial.same(client.hincrBy("h", "x", 4), 7L);
        Trial.same(client.hdel("h", "x"), 1L);
        Trial.same(client.hkeys("h"), Set.of("y"));
        Trial.same(client.type("h"), "hash");
    }

    private void severalKeys() {
        Trial.same(client.mset("{t}1", "1", "{t}2", "2"), "OK");
        Trial.same(client.mget("{t}1", "{t}2", "{t}3"), Arrays.asList("1", "2", null));
        Trial.same(client.exists("{t}1", "{t}2", "{t}3"), 2L);
        Trial.same(client.del("{t}1", "{t}2"), 2L);
    }

    private void scan() {
        Set<String> expected = new TreeSet<>();
        for (int number = 0; number < 200; number++) {
            client.set("scan-" + number, "1");
            expected.add("scan-" + number);
        }
        List<String> found = new ArrayList<>();
        for (ConnectionPool pool : client.getClusterNodes().values()) {
            try (Jedis node = new Jedis(pool.getResource())) {
                ScanResult<String> page = node.scan("0", new ScanParams().match("scan-*"));
                found.addAll(page.getResult());
                while (!page.isCompleteIteration()) {
                    page = node.scan(page.getCursor(), new ScanParams().match("scan-*"));
                    found.addAll(page.getResult());
                }
            }
        }
        Trial.same(found.size(), 200);
        Trial.same(new TreeSet<>(found), expected);
    }

    private void pipelines() {
        List<Response<String>> written = new ArrayList<>();
        List<Response<String>> read = new ArrayList<>();
        try (ClusterPipeline pipeline = client.pipelined()) {
            IntStream.range(0, 200).forEach(number -> written.add(pipeline.set("pipe-" + number, "" + number)));
            pipeline.sync();
            IntStream.range(0, 200).forEach(number -> read.add(pipeline.get("pipe-" + number)));
            pipeline.sync();
        }
        for (int number = 0; number < 200; number++) {
            Trial.same(written.get(number).get(), "OK");
            Trial.same(read.get(number).get(), "" + number);
        }
    }

    /** Sends each command to a wrong node first; the client must follow the redirection that it gets there. */
    private static final class Misled extends ClusterConnectionProvider {
        Misled(Set<HostAndPort> nodes, JedisClientConfig config) {
            super(nodes, config);
        }

        @Override
        public Connection getConnection(CommandArguments arguments) {
            HostAndPort right = getNode(JedisClusterCRC16.getSlot("moved"));
            return getConnection(otherThan(right, getNodes().keySet()));
        }
    }

    private static HostAndPort otherThan(HostAndPort leader, Set<String> nodes) {
        String other = nodes.stream().filter(node -> !node.equals(leader.toString())).findFirst().orElseThrow();
        return HostAndPort.from(other);
    }

    private void moved() {
        Misled provider = new Misled(nodes, config().build());
        HostAndPort leader = provider.getNode(JedisClusterCRC16.getSlot("moved"));
        try (RedisClusterClient misled = RedisClusterClient.builder().nodes(nodes).clientConfig(config().build())
            .connectionProvider(provider).build()) {
            Trial.same(misled.set("moved", "1"), "OK");
            Trial.same(misled.get("moved"), "1");
        }
        HostAndPort other = otherThan(leader, client.getClusterNodes().keySet());
        try (Jedis node = new Jedis(other, config().build())) {
            Trial.refused(JedisMovedDataException.class, leader.toString(), () -> node.get("moved"));
        }
    }

    private void wrongType() {
        client.hset("w", "x", "1");
        Trial.refused(JedisDataException.class, "WRONGTYPE", () -> client.incr("w"));
        client.set("no-number", "x");
        Trial.refused(JedisDataException.class, "not an integer", () -> client.incr("no-number"));
    }

    private void syntaxErrors() {
        Trial.refused(JedisDataException.class, "syntax error",
            () -> client.sendCommand("s", Protocol.Command.SET, "s", "1", "NOSUCH"));
        Trial.refused(JedisDataException.class, "wrong number of arguments",
            () -> client.sendCommand("s", Protocol.Command.GET, "s", "s2"));
        Trial.refused(JedisDataException.class, "unknown command",
            () -> client.sendCommand("s", () -> "NOSUCH".getBytes(), "s"));
    }

    private void largeValues() {
        byte[] large = new byte[4 << 20];
        for (int at = 0; at < large.length; at++) {
            large[at] = (byte) at;
        }
        Trial.same(client.set("large".getBytes(), large), "OK");
        Trial.same(client.get("large".getBytes()), large);
    }

    private void emptyAndBinary() {
        client.set("empty", "");
        Trial.same(client.get("empty"), "");
        Trial.same(client.exists("empty"), true);
        byte[] key = {0, (byte) 255, '\r', '\n'};
        byte[] value = {'\r', '\n', 0, (byte) 255, '$', '-', '1', '\r', '\n'};
        client.set(key, value);
        Trial.same(client.get(key), value);
    }

    private void wrongToken() {
        JedisClientConfig config = DefaultJedisClientConfig.builder().password("not the token").build();
        Trial.refused(JedisAccessControlException.class, "WRONGPASS", () -> {
            try (Jedis node = new Jedis(nodes.iterator().next(), config)) {
                node.ping();
            }
        });
    }

    private void bothProtocols() {
        client.hset("both", "x", "1");
        for (RedisProtocol protocol : List.of(RedisProtocol.RESP2, RedisProtocol.RESP3)) {
            JedisClientConfig config = config().protocol(protocol).build();
            try (RedisClusterClient other = RedisClusterClient.builder().nodes(nodes).clientConfig(config).build()) {
                Trial.same(other.hgetAll("both"), Map.of("x", "1"));
                Trial.same(other.get("absent"), null);
            }
        }
    }
}
