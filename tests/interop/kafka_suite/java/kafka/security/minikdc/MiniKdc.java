package kafka.security.minikdc;

import java.io.File;
import java.util.List;
import java.util.Properties;

import org.opentest4j.TestAbortedException;

/** By name and methods Kafka's own Kerberos server for tests. Millstream has no GSSAPI: a test that starts one is aborted. */
public class MiniKdc {
    public MiniKdc(Properties config, File workDir) { }

    public static Properties createConfig() { return new Properties(); }
    public void start() { throw new TestAbortedException("EXCLUDED GSSAPI"); }
    public void stop() { }
    public void createPrincipal(File keytabFile, List<String> principals) { }
}
