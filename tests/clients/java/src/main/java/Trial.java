// The trial of a client in Java: its checks, then writers, each with keys of its own whose versions only rise, until
// standard input ends. tests/clients/README.md has the protocol.

import java.io.InputStream;
import java.io.OutputStream;
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
    void run() throws Exception;
}

final class Trial {
    static final int WRITERS = 4;
    static final int KEYS = 64;
    static final int UNDER_WAY = 50;
    static final int RETRY_MS = 20;
    static final int RETRY_MS_MAX = 30_000;

    private final Cells cells;
    private final CountDownLatch began = new CountDownLatch(WRITERS);
    private final Map<String, Integer> met = new TreeMap<>();
    private volatile boolean isOver;

    private Trial(Cells cells) {
        this.cells = cells;
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
            throw new IllegalStateException(String.format("%.200s instead of %.200s", actual, expected));
        }
    }

    /** Checks that a node refuses a call, with the client's own error type. */
    static void refused(Class<? extends Exception> type, String text, Check call) {
        try {
            call.run();
        } catch (Exception error) {
            if (type.isInstance(error) && String.valueOf(error.getMessage()).contains(text)) {
                return;
            }
            throw new IllegalStateException(error + " instead of " + text, error);
        }
        throw new IllegalStateException("no error instead of " + text);
    }

    /** Runs everything and ends the process. */
    static void run(String client, String version, Map<String, Check> checks, Cells cells) {
        try {
            for (Map.Entry<String, Check> check : checks.entrySet()) {
                try {
                    check.getValue().run();
                } catch (Exception error) {
                    throw new IllegalStateException(check.getKey() + ": " + error, error);
                }
            }
            String names = checks.keySet().stream().map(Trial::text).collect(Collectors.joining(", "));
            System.out.printf("{\"client\": %s, \"version\": %s, \"checks\": [%s], %s}%n",
                text(client), text(version), names, new Trial(cells).load());
        } catch (Exception error) {
            error.printStackTrace();
            System.err.println(String.valueOf(error.getMessage()).replace('\n', ' '));
            System.exit(1);
        }
        System.exit(0);
    }

    private String load() throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(WRITERS);
        List<Future<Seen>> writers = new ArrayList<>();
        for (int writer = 0; writer < WRITERS; writer++) {
            int number = writer;
            writers.add(threads.submit(() -> write(number)));
        }
        began.await();
        System.out.println("{\"under_way\": true}");
        System.in.transferTo(OutputStream.nullOutputStream());
        isOver = true;
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
        String errors = met.entrySet().stream().map(each -> text(each.getKey()) + ": " + each.getValue())
            .collect(Collectors.joining(", "));
        return String.format(
            "\"acknowledged\": %d, \"lost\": %d, \"stale\": %d, \"longest_gap_ms\": %d, \"met\": {%s}",
            acknowledged, lost, stale, gapMs, errors);
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
