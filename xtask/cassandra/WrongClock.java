// The clock of a node that nobody synchronizes: a constant number of seconds off, until it is set right.
// A node takes it in place of its own when it is told to by the property cassandra.clock. It is set right once the
// node's folder, in which the node runs, has a file clock-is-right.
package atoll.development;

import java.io.File;
import org.apache.cassandra.utils.Clock;

public final class WrongClock extends Clock.Default {
    private static volatile long aheadMs = 1000L * Long.getLong("atoll.clock.ahead", 0L);

    static {
        Thread setting = new Thread(WrongClock::setRight, "clock-is-right");
        setting.setDaemon(true);
        setting.start();
    }

    private static void setRight() {
        try {
            while (!new File("clock-is-right").exists()) {
                Thread.sleep(200);
            }
            aheadMs = 0;
        } catch (InterruptedException end) {
            Thread.currentThread().interrupt();
        }
    }

    @Override
    public long currentTimeMillis() {
        return super.currentTimeMillis() + aheadMs;
    }
}
