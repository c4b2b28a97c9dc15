import java.util.Arrays;
import java.util.Objects;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicInteger;

/** One line per check on standard output; the exit code says whether all of them held. */
final class Check {
    interface Body {
        void run() throws Exception;
    }

    private static final AtomicInteger failed = new AtomicInteger();

    static void that(String name, Body body) {
        try {
            body.run();
            System.out.println("ok " + name);
        } catch (Throwable error) {
            failed.incrementAndGet();
            System.out.println("FAILED " + name + ": " + error);
            error.printStackTrace();
        }
    }

    static void equal(Object expected, Object got) {
        if (!Objects.deepEquals(expected, got)) {
            throw new AssertionError("expected " + text(expected) + ", got " + text(got));
        }
    }

    static void is(boolean condition, String otherwise) {
        if (!condition) {
            throw new AssertionError(otherwise);
        }
    }

    /** The body fails with this exception, directly or as the cause of what a future throws. */
    static void refused(Class<? extends Throwable> expected, Body body) throws Exception {
        try {
            body.run();
        } catch (ExecutionException error) {
            is(expected.isInstance(error.getCause()), "refused with " + error.getCause());
            return;
        } catch (Exception error) {
            is(expected.isInstance(error), "refused with " + error);
            return;
        }
        throw new AssertionError("not refused");
    }

    /** Kafka answers an admin request when the controller has it; the broker may show it a moment later. */
    static void soon(Body body) throws Exception {
        long deadline = System.nanoTime() + 30_000_000_000L;
        while (true) {
            try {
                body.run();
                return;
            } catch (Exception | AssertionError error) {
                if (System.nanoTime() > deadline) {
                    throw error;
                }
                Thread.sleep(20);
            }
        }
    }

    static String name(String prefix) {
        return prefix + "-" + UUID.randomUUID().toString().substring(0, 8);
    }

    static void end() {
        System.out.flush();
        System.exit(failed.get() == 0 ? 0 : 1);
    }

    private static String text(Object value) {
        return value instanceof byte[] bytes ? Arrays.toString(bytes) : String.valueOf(value);
    }
}
