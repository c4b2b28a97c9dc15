package millstream;

import java.util.HashSet;
import java.util.List;

/**
 * What a test asks of several brokers, made to fit one. A topic of replication factor 3 in a cluster of three is still a topic
 * when one broker keeps it; a wrong factor must stay wrong, since tests ask for its error. The patched NewTopic calls these.
 */
public final class OneBroker {
    /** How many brokers the running test believes to have. */
    public static volatile int believed = 1;

    private OneBroker() { }

    public static short replicationFactor(short factor) {
        return believed > 1 && factor > 1 && factor <= believed ? 1 : factor;
    }

    public static List<Integer> replicas(List<Integer> ids) {
        boolean valid = !ids.isEmpty() && new HashSet<>(ids).size() == ids.size() && ids.stream().allMatch(id -> id >= 0 && id < believed);
        return believed > 1 && valid ? List.of(0) : ids;
    }

    public static String setting(String name, String value) {
        return believed > 1 && name.equals("min.insync.replicas") ? "1" : value;
    }
}
