// The checks again and again while nodes come and go, and once more when they have. tests/clients/README.md has the
// rules.

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.function.Predicate;
import java.util.regex.Pattern;

/** An answer that is not the expected one. */
final class Wrong extends RuntimeException {
    private static final long serialVersionUID = 1;

    Wrong(String message, Throwable cause) {
        super(message, cause);
    }
}

/** The check has to begin again: it could not be made with the nodes as they are known. */
final class Later extends RuntimeException {
    private static final long serialVersionUID = 1;

    Later(String message) {
        super(message);
    }
}

/** The answer is that to a command which the client sent again after it had been carried out. */
final class SentTwice extends RuntimeException {
    private static final long serialVersionUID = 1;

    SentTwice(String message) {
        super(message);
    }
}

/**
 * One attempt at a check. Number 0 is the one before nodes change, which has the plain keys; every other one has keys
 * of its own, so that what an interrupted attempt left behind does not confuse the next one. A connection may end while
 * it may send twice: the client then sends a command again by itself, and cannot know whether it was carried out before.
 */
record Turn(int number, boolean maySendTwice) {
    String key(String name) {
        return number == 0 ? name : "again-" + number + "-" + name;
    }

    /** One of the keys of a tag, which share a slot. */
    String tagged(String tag, int which) {
        return "{" + key(tag) + "}" + which;
    }

    /** Checks the answer to a command that answers differently, in this known way, when it is carried out twice. */
    void once(Object actual, Object expected, Object twice) {
        if (maySendTwice && !Objects.equals(actual, expected) && Objects.equals(actual, twice)) {
            throw new SentTwice(actual + " instead of " + expected);
        }
        Trial.same(actual, expected);
    }
}

/** Makes the checks with connections of their own. */
final class Again {
    /** By these words a node says that a command may succeed later, or that it does not know its fate. */
    static final Pattern LATER =
        Pattern.compile("\\b(MOVED|ASK|CLUSTERDOWN|LOADING|TRYAGAIN|NOREPLICAS|UNKNOWN)\\b");
    /** These checks also depend on which node leads what, and slots may move while they are made. */
    private static final List<String> OF_LEADERS = List.of("scan", "moved");
    private static final int ATTEMPTS_MS_MAX = 30_000;
    private static final int RETRY_MS = 20;
    /** Between rounds, so that the writers keep most of the machine. */
    private static final int PAUSE_MS = 300;
    /** By then every node has heard who leads a slot now. */
    private static final int HEARD_MS_MAX = 3_000;

    private final Map<String, Check> checks;
    private final Predicate<Throwable> isGone;
    private final Callable<List<String>> leaders;
    private final Map<String, Integer> met = new TreeMap<>();
    private volatile boolean isOver;
    private int attempts;
    private int rounds;
    private int sentTwice;
    private List<String> atEnd = List.of();

    Again(Map<String, Check> checks, Predicate<Throwable> isGone, Callable<List<String>> leaders) {
        this.checks = checks;
        this.isGone = isGone;
        this.leaders = leaders;
    }

    /** Who leads which slots according to the answer to CLUSTER NODES: an address and a range each. */
    static List<String> leaders(String clusterNodes) {
        List<String> told = new ArrayList<>();
        for (String line : clusterNodes.split("\n")) {
            String[] words = line.trim().split(" ");
            for (int at = 8; at < words.length; at++) {
                told.add(words[1].split("@")[0] + " " + words[at]);
            }
        }
        return told.stream().sorted().toList();
    }

    /** The addresses of nodes that lead slots. */
    static List<String> addresses(List<String> leaders) {
        return leaders.stream().map(each -> each.split(" ")[0]).distinct().toList();
    }

    /** Lets one more whole round be the last. */
    void end() {
        isOver = true;
    }

    Void run() throws Exception {
        for (boolean isLast = false; !isLast;) {
            isLast = isOver;
            List<String> made = new ArrayList<>();
            for (Map.Entry<String, Check> check : checks.entrySet()) {
                make(check.getKey(), check.getValue(), isLast);
                made.add(check.getKey());
            }
            atEnd = made;
            rounds++;
            if (!isLast) {
                Thread.sleep(PAUSE_MS);
            }
        }
        return null;
    }

    private void make(String name, Check check, boolean isLast) throws Exception {
        long until = System.currentTimeMillis() + ATTEMPTS_MS_MAX;
        while (true) {
            attempts++;
            Exception why = attempt(name, check, new Turn(attempts, !isLast));
            if (why == null) {
                return;
            }
            met.merge(String.format("%.80s", name + ": " + why), 1, Integer::sum);
            if (System.currentTimeMillis() > until) {
                throw new IllegalStateException("while nodes changed: not made in 30 s: " + name + ": " + why, why);
            }
            Thread.sleep(RETRY_MS);
        }
    }

    /** Why the check has to begin again; null if it holds. */
    private Exception attempt(String name, Check check, Turn turn) throws Exception {
        boolean isOfLeaders = OF_LEADERS.contains(name);
        List<String> before = List.of();
        try {
            if (isOfLeaders) {
                before = leaders.call();
            }
            check.run(turn);
            return null;
        } catch (SentTwice error) {
            sentTwice++;
            return error;
        } catch (Exception error) {
            if (isLater(error) || isOfLeaders && haveChanged(before)) {
                return error;
            }
            throw new IllegalStateException("while nodes changed: " + name + ": " + error, error);
        }
    }

    private boolean isLater(Throwable error) {
        for (Throwable each = error; each != null; each = each.getCause()) {
            if (each instanceof Later || isGone.test(each)) {
                return true;
            }
        }
        return false;
    }

    /** Whether slots have other leaders than before, or get them shortly: a node may not have heard yet. */
    private boolean haveChanged(List<String> before) throws Exception {
        long until = System.currentTimeMillis() + HEARD_MS_MAX;
        while (System.currentTimeMillis() < until) {
            try {
                if (!leaders.call().equals(before)) {
                    return true;
                }
            } catch (Exception error) {
                if (!isLater(error)) {
                    throw error;
                }
            }
            Thread.sleep(RETRY_MS);
        }
        return false;
    }

    int rounds() {
        return rounds;
    }

    int sentTwice() {
        return sentTwice;
    }

    List<String> atEnd() {
        return atEnd;
    }

    Map<String, Integer> met() {
        return met;
    }
}
