// lettuce at a ring: the checks that every client makes, then writes and the checks again while nodes change.
//
// Called with the nodes, HOST:PORT,HOST:PORT,...; the token is in REDISCLI_AUTH. tests/clients/README.md has the protocol.

import io.lettuce.core.KeyScanCursor;
import io.lettuce.core.KeyValue;
import io.lettuce.core.LettuceFutures;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisCommandTimeoutException;
import io.lettuce.core.RedisConnectionException;
import io.lettuce.core.RedisException;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisURI;
import io.lettuce.core.ScanArgs;
import io.lettuce.core.SetArgs;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.sync.RedisKeyCommands;
import io.lettuce.core.cluster.ClusterClientOptions;
import io.lettuce.core.cluster.ClusterTopologyRefreshOptions;
import io.lettuce.core.cluster.PartitionSelectorException;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.SlotHash;
import io.lettuce.core.cluster.UnknownPartitionException;
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
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.regex.Pattern;

final class LettuceTrial {
    private static final String TOKEN = System.getenv("REDISCLI_AUTH");
    /** What the client says when a node is gone, in errors of no type of their own. */
    private static final Pattern GONE = Pattern.compile("(?i)not connected|connection (is )?closed");

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
        LettuceTrial other = new LettuceTrial(arguments[0]);
        Again again = new Again(other.checks(), LettuceTrial::isGone, other::leaders);
        String version = Trial.version(RedisClient.class, "io.lettuce/lettuce-core");
        Trial.run("lettuce", version, trial.checks(), cells, again);
    }

    /** Whether what failed may succeed later: its node is gone or about to be, or its slot moves. */
    private static boolean isGone(Throwable error) {
        String said = String.valueOf(error.getMessage());
        return error instanceof RedisConnectionException || error instanceof RedisCommandTimeoutException
            || error instanceof PartitionSelectorException || error instanceof UnknownPartitionException
            || error instanceof IOException || error instanceof TimeoutException
            || error instanceof RedisCommandExecutionException && Again.LATER.matcher(said).find()
            || error instanceof RedisException && GONE.matcher(said).find();
    }

    /** Who leads which slots, as a node says. */
    private List<String> leaders() {
        return Again.leaders(client.clusterNodes());
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
        turn.once(client.set(key, "1", SetArgs.Builder.nx()), "OK", null);
        Trial.same(client.set(key, "2", SetArgs.Builder.nx()), null);
        Trial.same(client.set(turn.key("o-absent"), "2", SetArgs.Builder.xx()), null);
        Trial.same(client.set(key, "3", SetArgs.Builder.xx()), "OK");
        turn.once(client.getdel(key), "3", null);
        Trial.same(client.get(key), null);
    }

    private void existsAndDel(Turn turn) {
        String key = turn.key("e");
        client.set(key, "1");
        Trial.same(client.exists(key), 1L);
        turn.once(client.del(key), 1L, 0L);
        Trial.same(client.exists(key), 0L);
        Trial.same(client.del(key), 0L);
    }

    private void numbers(Turn turn) {
        String key = turn.key("n");
        turn.once(client.incr(key), 1L, 2L);
        turn.once(client.incrby(key, 5), 6L, 11L);
        turn.once(client.decrby(key, 2), 4L, 2L);
        turn.once(client.append(key, "2"), 2L, 3L);
        Trial.same(client.strlen(key), 2L);
        Trial.same(client.get(key), "42");
    }

    private void expiry(Turn turn) {
        String key = turn.key("x");
        long setAt = System.currentTimeMillis();
        client.set(key, "1", SetArgs.Builder.ex(100));
        Trial.lives(client.ttl(key), 100, setAt);
        turn.once(client.persist(key), true, false);
        Trial.same(client.ttl(key), -1L);
        long expiresAt = System.currentTimeMillis();
        Trial.same(client.expire(key, 200), true);
        Trial.lives(client.ttl(key), 200, expiresAt);
        turn.once(client.pexpire(key, 50), true, false);
        long until = System.currentTimeMillis() + 10_000;
        while (client.get(key) != null) {
            Trial.same(System.currentTimeMillis() < until, true);
        }
        Trial.same(client.ttl(key), -2L);
    }

    private void hashes(Turn turn) {
        String key = turn.key("h");
        turn.once(client.hset(key, Map.of("x", "1", "y", "2")), 2L, 0L);
        Trial.same(client.hset(key, "x", "3"), false);
        Trial.same(client.hget(key, "x"), "3");
        Trial.same(client.hget(key, "z"), null);
        Trial.same(client.hgetall(key), Map.of("x", "3", "y", "2"));
        Trial.same(client.hmget(key, "y", "z"), List.of(KeyValue.just("y", "2"), KeyValue.empty("z")));
        Trial.same(client.hexists(key, "y"), true);
        Trial.same(client.hlen(key), 2L);
        turn.once(client.hincrby(key, "x", 4), 7L, 11L);
        turn.once(client.hdel(key, "x"), 1L, 0L);
        Trial.same(client.hkeys(key), List.of("y"));
        Trial.same(client.type(key), "hash");
    }

    private void severalKeys(Turn turn) {
        String one = turn.tagged("t", 1);
        String two = turn.tagged("t", 2);
        String absent = turn.tagged("t", 3);
        Trial.same(client.mset(Map.of(one, "1", two, "2")), "OK");
        List<KeyValue<String, String>> expected =
            List.of(KeyValue.just(one, "1"), KeyValue.just(two, "2"), KeyValue.empty(absent));
        Trial.same(client.mget(one, two, absent), expected);
        Trial.same(client.exists(one, two, absent), 2L);
        turn.once(client.del(one, two), 2L, 0L);
    }

    private void scan(Turn turn) {
        TreeSet<String> expected = new TreeSet<>();
        for (int number = 0; number < 200; number++) {
            client.set(turn.key("scan-" + number), "1");
            expected.add(turn.key("scan-" + number));
        }
        List<String> found = new ArrayList<>();
        ScanArgs ours = ScanArgs.Builder.matches(turn.key("scan-*"));
        if (turn.number() == 0) {
            scan(client, ours, found);
        } else {
            // This client also scans nodes that are listed as down, until the ring forgets them.
            for (String address : Again.addresses(leaders())) {
                String[] parts = address.split(":");
                scan(connection.getConnection(parts[0], Integer.parseInt(parts[1])).sync(), ours, found);
            }
        }
        Trial.same(found.size(), 200);
        Trial.same(new TreeSet<>(found), expected);
    }

    private static void scan(RedisKeyCommands<String, String> from, ScanArgs ours, List<String> found) {
        KeyScanCursor<String> page = from.scan(ours);
        found.addAll(page.getKeys());
        while (!page.isFinished()) {
            page = from.scan(page, ours);
            found.addAll(page.getKeys());
        }
    }

    /** Commands that are sent without waiting for answers go out together. */
    private void pipelines(Turn turn) throws Exception {
        List<RedisFuture<String>> written = new ArrayList<>();
        List<RedisFuture<String>> read = new ArrayList<>();
        for (int number = 0; number < 200; number++) {
            written.add(connection.async().set(turn.key("pipe-" + number), "" + number));
        }
        await(written);
        for (int number = 0; number < 200; number++) {
            read.add(connection.async().get(turn.key("pipe-" + number)));
        }
        await(read);
        for (int number = 0; number < 200; number++) {
            Trial.same(written.get(number).get(), "OK");
            Trial.same(read.get(number).get(), "" + number);
        }
    }

    private static void await(List<RedisFuture<String>> answers) {
        if (!LettuceFutures.awaitAll(10, TimeUnit.SECONDS, answers.toArray(new RedisFuture<?>[0]))) {
            throw new Later("some commands of a pipeline got no answer");
        }
    }

    /** A separate client is made to believe that another node leads every slot. */
    private void moved(Turn turn) {
        String key = turn.key("moved");
        int slot = SlotHash.getSlot(key);
        RedisClusterNode leads = connection.getPartitions().getPartitionBySlot(slot);
        if (leads == null) {
            throw new Later("the client knows of no leader of the slot");
        }
        RedisURI leader = leads.getUri();
        RedisURI other = otherThan(leader, turn);
        try (RedisClusterClient misled = RedisClusterClient.create(nodes);
            StatefulRedisClusterConnection<String, String> misleading = misled.connect()) {
            for (RedisClusterNode node : misleading.getPartitions()) {
                boolean isOther = node.getUri().getPort() == other.getPort();
                node.setSlots(isOther ? java.util.stream.IntStream.range(0, SlotHash.SLOT_COUNT).boxed().toList() : List.of());
            }
            misleading.getPartitions().updateCache();
            RedisClusterNode believed = misleading.getPartitions().getPartitionBySlot(slot);
            if (believed == null) {
                throw new Later("the other client does not know the node");
            }
            Trial.same(believed.getUri().getPort(), other.getPort());
            Trial.same(misleading.sync().set(key, "1"), "OK");
            Trial.same(misleading.sync().get(key), "1");
        }
        try (RedisClient alone = RedisClient.create(other);
            StatefulRedisConnection<String, String> node = alone.connect()) {
            String told = "MOVED " + slot + " " + leader.getHost() + ":" + leader.getPort();
            Trial.refused(RedisCommandExecutionException.class, told, () -> node.sync().get(key));
        }
    }

    /** Another node that leads slots as far as the client knows. */
    private RedisURI otherThan(RedisURI leader, Turn turn) {
        List<RedisURI> others = new ArrayList<>();
        for (RedisClusterNode node : connection.getPartitions()) {
            RedisURI at = node.getUri();
            if (at.getPort() != leader.getPort() && !node.getSlots().isEmpty()) {
                others.add(uri(at.getHost() + ":" + at.getPort(), TOKEN));
            }
        }
        if (others.isEmpty()) {
            throw new Later("the client knows of no other node");
        }
        return others.get(turn.number() % others.size());
    }

    private void wrongType(Turn turn) {
        String hash = turn.key("w");
        String word = turn.key("no-number");
        client.hset(hash, "x", "1");
        Trial.refused(RedisCommandExecutionException.class, "WRONGTYPE", () -> client.incr(hash));
        client.set(word, "x");
        Trial.refused(RedisCommandExecutionException.class, "not an integer", () -> client.incr(word));
    }

    private void syntaxErrors(Turn turn) {
        String key = turn.key("s");
        refused(key, "syntax error", CommandType.SET, "1", "NOSUCH");
        refused(key, "wrong number of arguments", CommandType.GET, "s2");
        refused(key, "unknown command", () -> "NOSUCH".getBytes());
    }

    private void refused(String key, String text, ProtocolKeyword command, String... more) {
        CommandArgs<String, String> arguments = new CommandArgs<>(StringCodec.UTF8).addKey(key);
        for (String each : more) {
            arguments.add(each);
        }
        Trial.refused(RedisCommandExecutionException.class, text,
            () -> client.dispatch(command, new StatusOutput<>(StringCodec.UTF8), arguments));
    }

    private void largeValues(Turn turn) {
        byte[] key = turn.key("large").getBytes();
        byte[] large = new byte[4 << 20];
        for (int at = 0; at < large.length; at++) {
            large[at] = (byte) at;
        }
        try (var bytes = factory.connect(ByteArrayCodec.INSTANCE)) {
            Trial.same(bytes.sync().set(key, large), "OK");
            Trial.same(bytes.sync().get(key), large);
            turn.once(bytes.sync().del(key), 1L, 0L);
        }
    }

    private void emptyAndBinary(Turn turn) {
        String empty = turn.key("empty");
        client.set(empty, "");
        Trial.same(client.get(empty), "");
        Trial.same(client.exists(empty), 1L);
        byte[] key = Trial.joined(turn.key(""), new byte[] {0, (byte) 255, '\r', '\n'});
        byte[] value = {'\r', '\n', 0, (byte) 255, '$', '-', '1', '\r', '\n'};
        try (var bytes = factory.connect(ByteArrayCodec.INSTANCE)) {
            bytes.sync().set(key, value);
            Trial.same(bytes.sync().get(key), value);
        }
    }

    private void wrongToken(Turn turn) {
        RedisURI node = nodes.get(turn.number() % nodes.size());
        RedisURI wrong = uri(node.getHost() + ":" + node.getPort(), "not the token");
        try (RedisClient alone = RedisClient.create(wrong)) {
            alone.connect();
        } catch (RedisConnectionException error) {
            if (String.valueOf(error.getCause()).contains("WRONGPASS")) {
                return;
            }
            throw error;
        }
        throw new Wrong("a wrong token was let in", null);
    }

    private void bothProtocols(Turn turn) {
        String key = turn.key("both");
        client.hset(key, "x", "1");
        for (ProtocolVersion protocol : List.of(ProtocolVersion.RESP2, ProtocolVersion.RESP3)) {
            try (RedisClusterClient other = RedisClusterClient.create(nodes)) {
                other.setOptions(ClusterClientOptions.builder().protocolVersion(protocol).build());
                RedisAdvancedClusterCommands<String, String> commands = other.connect().sync();
                Trial.same(commands.hgetall(key), Map.of("x", "1"));
                Trial.same(commands.get(turn.key("absent")), null);
            }
        }
    }
}
