// The trial of a client in Java: its checks, then writers, each with keys of its own whose versions only rise, and the
// checks again, until standard input ends. tests/clients/README.md has the protocol.

import java.io.InputStream;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.Collectors;

/** The two commands that a load needs from a client. */
interface Cells {
    void set(String key, String value);

    String get(String key);
}

/** The action of a check. */
interface Check {
    void run(Turn turn) throws Exception;
}

/** A call that a node should refuse. */
interface Call {
    void run() throws Exception;
}

final class Trial {
    static final int WRITERS = 4;
    static final int KEYS = 64;
    static final int UNDER_WAY = 50;
    static final int RETRY_MS = 20;
    static final int RETRY_MS_MAX = 30_000;

    private final Cells cells;
    private final Again again;
    private final CountDownLatch began = new CountDownLatch(WRITERS);
    private final Map<String, Integer> met = new TreeMap<>();
    private volatile boolean isOver;

    private Trial(Cells cells, Again again) {
        this.cells = cells;
        this.again = again;
    }

    /** What one writer observed. */
    private static final class Seen {
        final int[] acknowledged = new int[KEYS];
        int writes;
        int stale;
        long gapMs;
    }

    static void same(Object actual, Object expected) {
        boolean isSame = actual instanceof byte[] bytes && expected instanceof byte[] wanted
            ? Arrays.equals(bytes, wanted)
            : Objects.equals(actual, expected);
        if (!isSame) {
            throw new Wrong(String.format("%.200s instead of %.200s", actual, expected), null);
        }
    }

    /** Checks the time that is left; a command may have waited for another node since it was set. */
    static void lives(long left, long seconds, long sinceMs) {
        long waitedMs = System.currentTimeMillis() - sinceMs;
        same((seconds - 10) * 1_000 - waitedMs < left * 1_000 && left <= seconds, true);
    }

    /** Checks that a node refuses a call, with the client's own error type. */
    static void refused(Class<? extends Exception> type, String text, Call call) {
        try {
            call.run();
        } catch (Exception error) {
            if (type.isInstance(error) && String.valueOf(error.getMessage()).contains(text)) {
                return;
            }
            throw new Wrong(error + " instead of " + text, error);
        }
        throw new Wrong("no error instead of " + text, null);
    }

    /** Runs everything and ends the process. The checks are made again with other connections. */
    static void run(String client, String version, Map<String, Check> checks, Cells cells, Again again) {
        try {
            for (Map.Entry<String, Check> check : checks.entrySet()) {
                try {
                    check.getValue().run(new Turn(0, false));
                } catch (Exception error) {
                    throw new IllegalStateException(check.getKey() + ": " + error, error);
                }
            }
            String names = checks.keySet().stream().map(Trial::text).collect(Collectors.joining(", "));
            System.out.printf("{\"client\": %s, \"version\": %s, \"checks\": [%s], %s}%n",
                text(client), text(version), names, new Trial(cells, again).load());
        } catch (Exception error) {
            error.printStackTrace();
            System.err.println(String.valueOf(error.getMessage()).replace('\n', ' '));
            System.exit(1);
        }
        System.exit(0);
    }

    private String load() throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(WRITERS + 1);
        List<Future<Seen>> writers = new ArrayList<>();
        for (int writer = 0; writer < WRITERS; writer++) {
            int number = writer;
            writers.add(threads.submit(() -> write(number)));
        }
        began.await();
        System.out.println("{\"under_way\": true}");
        Callable<Void> rounds = again::run;
        Future<Void> checking = threads.submit(rounds);
        System.in.transferTo(OutputStream.nullOutputStream());
        isOver = true;
        again.end();
        int acknowledged = 0;
        int lost = 0;
        int stale = 0;
        long gapMs = 0;
        for (int writer = 0; writer < WRITERS; writer++) {
            Seen seen = writers.get(writer).get();
            acknowledged += seen.writes;
            lost += lost(writer, seen);
            stale += seen.stale;
            gapMs = Math.max(gapMs, seen.gapMs);
        }
        checking.get();
        met.putAll(again.met());
        String made = again.atEnd().stream().map(Trial::text).collect(Collectors.joining(", "));
        String errors = met.entrySet().stream().map(each -> text(each.getKey()) + ": " + each.getValue())
            .collect(Collectors.joining(", "));
        String checks = String.format("\"checks_under_way\": %d, \"checks_at_end\": [%s], \"sent_twice\": %d",
            again.rounds(), made, again.sentTwice());
        return String.format(
            "%s, \"acknowledged\": %d, \"lost\": %d, \"stale\": %d, \"longest_gap_ms\": %d, \"met\": {%s}",
            checks, acknowledged, lost, stale, gapMs, errors);
    }

    private Seen write(int writer) throws Exception {
        Seen seen = new Seen();
        long last = System.nanoTime();
        while (!isOver) {
            int number = seen.writes + 1;
            String key = "load-" + writer + "-" + number % KEYS;
            if (value(key) != seen.acknowledged[number % KEYS]) {
                seen.stale++;
            }
            again(() -> {
                cells.set(key, String.valueOf(number));
                return null;
            });
            seen.acknowledged[number % KEYS] = number;
            seen.writes = number;
            long now = System.nanoTime();
            seen.gapMs = Math.max(seen.gapMs, (now - last) / 1_000_000);
            last = now;
            if (number == UNDER_WAY) {
                began.countDown();
            }
        }
        return seen;
    }

    private int lost(int writer, Seen seen) throws Exception {
        int count = 0;
        for (int at = 0; at < KEYS; at++) {
            int version = seen.acknowledged[at];
            if (version != 0 && value("load-" + writer + "-" + at) != version) {
                count++;
            }
        }
        return count;
    }

    /** The version at a key; 0 if there is none. */
    private int value(String key) throws Exception {
        String found = again(() -> cells.get(key));
        return found == null ? 0 : Integer.parseInt(found);
    }

    private <T> T again(Callable<T> call) throws Exception {
        long until = System.currentTimeMillis() + RETRY_MS_MAX;
        while (true) {
            try {
                return call.call();
            } catch (Exception error) {
                synchronized (met) {
                    met.merge(String.format("%.80s", error), 1, Integer::sum);
                }
                if (System.currentTimeMillis() > until) {
                    throw error;
                }
                Thread.sleep(RETRY_MS);
            }
        }
    }

    /** The bytes of a text, and others behind them. */
    static byte[] joined(String first, byte[] second) {
        byte[] start = first.getBytes(StandardCharsets.UTF_8);
        byte[] all = Arrays.copyOf(start, start.length + second.length);
        System.arraycopy(second, 0, all, start.length, second.length);
        return all;
    }

    /** A text as a JSON string. */
    private static String text(String text) {
        String escaped = text.replace("\\", "\\\\").replace("\"", "\\\"").replaceAll("\\p{Cntrl}", " ");
        return "\"" + escaped + "\"";
    }

    /** The version of the library that contains a class, as Maven recorded it in the library's archive. */
    static String version(Class<?> of, String artifact) throws Exception {
        java.util.Properties properties = new java.util.Properties();
        try (InputStream file = of.getResourceAsStream("/META-INF/maven/" + artifact + "/pom.properties")) {
            properties.load(Objects.requireNonNull(file, "the archive names no version"));
        }
        return properties.getProperty("version");
    }
}
