// lettuce at a ring: the checks that every client makes, then writes while the nodes change.
//
// Called with the nodes, HOST:PORT,HOST:PORT,...; the token is in REDISCLI_AUTH. tests/clients/README.md has the protocol.

import io.lettuce.core.KeyScanCursor;
import io.lettuce.core.KeyValue;
import io.lettuce.core.LettuceFutures;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisConnectionException;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisURI;
import io.lettuce.core.ScanArgs;
import io.lettuce.core.SetArgs;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.cluster.ClusterClientOptions;
import io.lettuce.core.cluster.ClusterTopologyRefreshOptions;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.SlotHash;
import io.lettuce.core.cluster.api.StatefulRedisClusterConnection;
import io.lettuce.core.cluster.api.sync.RedisAdvancedClusterCommands;
import io.lettuce.core.cluster.models.partitions.RedisClusterNode;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.StatusOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.CommandType;
import io.lettuce.core.protocol.ProtocolKeyword;
import io.lettuce.core.protocol.ProtocolVersion;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;

final class LettuceTrial {
    private static final String TOKEN = System.getenv("REDISCLI_AUTH");

    private final List<RedisURI> nodes;
    private final RedisClusterClient factory;
    private final StatefulRedisClusterConnection<String, String> connection;
    private final RedisAdvancedClusterCommands<String, String> client;

    private LettuceTrial(String nodes) {
        this.nodes = Arrays.stream(nodes.split(",")).map(node -> uri(node, TOKEN)).toList();
        this.factory = RedisClusterClient.create(this.nodes);
        // By default it asks for the leaders of slots after a redirection, and after some attempts at a node that is gone.
        this.factory.setOptions(ClusterClientOptions.builder().topologyRefreshOptions(
            ClusterTopologyRefreshOptions.builder().enableAllAdaptiveRefreshTriggers()
                .adaptiveRefreshTriggersTimeout(Duration.ofSeconds(1)).enablePeriodicRefresh(Duration.ofSeconds(1))
                .build()).build());
        this.connection = factory.connect();
        this.client = connection.sync();
    }

    private static RedisURI uri(String node, String token) {
        String[] parts = node.split(":");
        return RedisURI.Builder.redis(parts[0], Integer.parseInt(parts[1])).withPassword(token.toCharArray())
            // A command to a node that is gone waits for it, by default for a minute.
            .withTimeout(Duration.ofSeconds(5)).build();
    }

    public static void main(String[] arguments) throws Exception {
        LettuceTrial trial = new LettuceTrial(arguments[0]);
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
        Trial.run("lettuce", Trial.version(RedisClient.class, "io.lettuce/lettuce-core"), trial.checks(), cells);
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
        Trial.same(client.set("o", "1", SetArgs.Builder.nx()), "OK");
        Trial.same(client.set("o", "2", SetArgs.Builder.nx()), null);
        Trial.same(client.set("o-absent", "2", SetArgs.Builder.xx()), null);
        Trial.same(client.set("o", "3", SetArgs.Builder.xx()), "OK");
        Trial.same(client.getdel("o"), "3");
        Trial.same(client.get("o"), null);
    }

    private void existsAndDel() {
        client.set("e", "1");
        Trial.same(client.exists("e"), 1L);
        Trial.same(client.del("e"), 1L);
        Trial.same(client.exists("e"), 0L);
        Trial.same(client.del("e"), 0L);
    }

    private void numbers() {
        Trial.same(client.incr("n"), 1L);
        Trial.same(client.incrby("n", 5), 6L);
        Trial.same(client.decrby("n", 2), 4L);
        Trial.same(client.append("n", "2"), 2L);
        Trial.same(client.strlen("n"), 2L);
        Trial.same(client.get("n"), "42");
    }

    private void expiry() {
        client.set("x", "1", SetArgs.Builder.ex(100));
        lives(90, 100);
        Trial.same(client.persist("x"), true);
        Trial.same(client.ttl("x"), -1L);
        Trial.same(client.expire("x", 200), true);
        lives(190, 200);
        Trial.same(client.pexpire("x", 50), true);
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
        Trial.same(client.hset("h", "x", "3"), false);
        Trial.same(client.hget("h", "x"), "3");
        Trial.same(client.hget("h", "z"), null);
        Trial.same(client.hgetall("h"), Map.of("x", "3", "y", "2"));
        Trial.same(client.hmget("h", "y", "z"), List.of(KeyValue.just("y", "2"), KeyValue.empty("z")));
        Trial.same(client.hexists("h", "y"), true);
        Trial.same(client.hlen("h"), 2L);
        Trial.same(client.hincrby("h", "x", 4), 7L);
        Trial.same(client.hdel("h", "x"), 1L);
        Trial.same(client.hkeys("h"), List.of("y"));
        Trial.same(client.type("h"), "hash");
    }

    private void severalKeys() {
        Trial.same(client.mset(Map.of("{t}1", "1", "{t}2", "2")), "OK");
        List<KeyValue<String, String>> expected =
            List.of(KeyValue.just("{t}1", "1"), KeyValue.just("{t}2", "2"), KeyValue.empty("{t}3"));
        Trial.same(client.mget("{t}1", "{t}2", "{t}3"), expected);
        Trial.same(client.exists("{t}1", "{t}2", "{t}3"), 2L);
        Trial.same(client.del("{t}1", "{t}2"), 2L);
    }

    private void scan() {
        TreeSet<String> expected = new TreeSet<>();
        for (int number = 0; number < 200; number++) {
            client.set("scan-" + number, "1");
            expected.add("scan-" + number);
        }
        List<String> found = new ArrayList<>();
        KeyScanCursor<String> page = client.scan(ScanArgs.Builder.matches("scan-*"));
        found.addAll(page.getKeys());
        while (!page.isFinished()) {
            page = client.scan(page, ScanArgs.Builder.matches("scan-*"));
            found.addAll(page.getKeys());
        }
        Trial.same(found.size(), 200);
        Trial.same(new TreeSet<>(found), expected);
    }

    /** Commands that are sent without waiting for answers go out together. */
    private void pipelines() throws Exception {
        List<RedisFuture<String>> written = new ArrayList<>();
        List<RedisFuture<String>> read = new ArrayList<>();
        for (int number = 0; number < 200; number++) {
            written.add(connection.async().set("pipe-" + number, "" + number));
        }
        Trial.same(LettuceFutures.awaitAll(10, TimeUnit.SECONDS, written.toArray(new RedisFuture<?>[0])), true);
        for (int number = 0; number < 200; number++) {
            read.add(connection.async().get("pipe-" + number));
        }
        Trial.same(LettuceFutures.awaitAll(10, TimeUnit.SECONDS, read.toArray(new RedisFuture<?>[0])), true);
        for (int number = 0; number < 200; number++) {
            Trial.same(written.get(number).get(), "OK");
            Trial.same(read.get(number).get(), "" + number);
        }
    }

    /** A separate client is made to believe that another node leads every slot. */
    private void moved() {
        int slot = SlotHash.getSlot("moved");
        RedisURI leader = connection.getPartitions().getPartitionBySlot(slot).getUri();
        RedisURI other = nodes.stream().filter(node -> node.getPort() != leader.getPort()).findFirst().orElseThrow();
        try (RedisClusterClient misled = RedisClusterClient.create(nodes);
            StatefulRedisClusterConnection<String, String> misleading = misled.connect()) {
            for (RedisClusterNode node : misleading.getPartitions()) {
                boolean isOther = node.getUri().getPort() == other.getPort();
                node.setSlots(isOther ? java.util.stream.IntStream.range(0, SlotHash.SLOT_COUNT).boxed().toList() : List.of());
            }
            misleading.getPartitions().updateCache();
            Trial.same(misleading.getPartitions().getPartitionBySlot(slot).getUri().getPort(), other.getPort());
            Trial.same(misleading.sync().set("moved", "1"), "OK");
            Trial.same(misleading.sync().get("moved"), "1");
        }
        try (RedisClient alone = RedisClient.create(other);
            StatefulRedisConnection<String, String> node = alone.connect()) {
            String told = "MOVED " + slot + " " + leader.getHost() + ":" + leader.getPort();
            Trial.refused(RedisCommandExecutionException.class, told, () -> node.sync().get("moved"));
        }
    }

    private void wrongType() {
        client.hset("w", "x", "1");
        Trial.refused(RedisCommandExecutionException.class, "WRONGTYPE", () -> client.incr("w"));
        client.set("no-number", "x");
        Trial.refused(RedisCommandExecutionException.class, "not an integer", () -> client.incr("no-number"));
    }

    private void syntaxErrors() {
        refused("syntax error", CommandType.SET, "1", "NOSUCH");
        refused("wrong number of arguments", CommandType.GET, "s2");
        refused("unknown command", () -> "NOSUCH".getBytes());
    }

    private void refused(String text, ProtocolKeyword command, String... more) {
        CommandArgs<String, String> arguments = new CommandArgs<>(StringCodec.UTF8).addKey("s");
        for (String each : more) {
            arguments.add(each);
        }
        Trial.refused(RedisCommandExecutionException.class, text,
            () -> client.dispatch(command, new StatusOutput<>(StringCodec.UTF8), arguments));
    }

    private void largeValues() {
        byte[] large = new byte[4 << 20];
        for (int at = 0; at < large.length; at++) {
            large[at] = (byte) at;
        }
        try (var bytes = factory.connect(ByteArrayCodec.INSTANCE)) {
            Trial.same(bytes.sync().set("large".getBytes(), large), "OK");
            Trial.same(bytes.sync().get("large".getBytes()), large);
        }
    }

    private void emptyAndBinary() {
        client.set("empty", "");
        Trial.same(client.get("empty"), "");
        Trial.same(client.exists("empty"), 1L);
        byte[] key = {0, (byte) 255, '\r', '\n'};
        byte[] value = {'\r', '\n', 0, (byte) 255, '$', '-', '1', '\r', '\n'};
        try (var bytes = factory.connect(ByteArrayCodec.INSTANCE)) {
            bytes.sync().set(key, value);
            Trial.same(bytes.sync().get(key), value);
        }
    }

    private void wrongToken() {
        RedisURI wrong = uri(nodes.get(0).getHost() + ":" + nodes.get(0).getPort(), "not the token");
        try (RedisClient alone = RedisClient.create(wrong)) {
            alone.connect();
        } catch (RedisConnectionException error) {
            Trial.same(String.valueOf(error.getCause()).contains("WRONGPASS"), true);
            return;
        }
        throw new IllegalStateException("a wrong token was let in");
    }

    private void bothProtocols() {
        client.hset("both", "x", "1");
        for (ProtocolVersion protocol : List.of(ProtocolVersion.RESP2, ProtocolVersion.RESP3)) {
            try (RedisClusterClient other = RedisClusterClient.create(nodes)) {
                other.setOptions(ClusterClientOptions.builder().protocolVersion(protocol).build());
                RedisAdvancedClusterCommands<String, String> commands = other.connect().sync();
                Trial.same(commands.hgetall("both"), Map.of("x", "1"));
                Trial.same(commands.get("absent"), null);
            }
        }
    }
}
