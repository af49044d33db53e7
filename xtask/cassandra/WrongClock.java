// The clock of a node that nobody synchronizes: a constant number of seconds off.
// A node takes it in place of its own when it is told to by the property cassandra.clock.
package atoll.development;

import org.apache.cassandra.utils.Clock;

public final class WrongClock extends Clock.Default {
    private static final long AHEAD_MS = 1000L * Long.getLong("atoll.clock.ahead", 0L);

    @Override
    public long currentTimeMillis() {
        return super.currentTimeMillis() + AHEAD_MS;
    }
}
