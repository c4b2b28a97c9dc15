package millstream;

import java.util.*;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;

import javax.security.auth.login.AppConfigurationEntry;
import javax.security.auth.login.Configuration;

import com.yammer.metrics.core.Gauge;
import com.yammer.metrics.core.MetricName;
import kafka.security.JaasTestUtils;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.errors.DelegationTokenDisabledException;
import org.apache.kafka.common.internals.Plugin;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.Measurable;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.security.scram.ScramCredential;
import org.apache.kafka.common.security.token.delegation.internals.DelegationTokenCache;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.security.CredentialProvider;
import org.apache.kafka.server.authorizer.AclCreateResult;
import org.apache.kafka.server.authorizer.AclDeleteResult;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.server.metrics.KafkaYammerMetrics;
import org.opentest4j.TestAbortedException;

/**
 * What the tests of Kafka's security say in the JVM, said to Millstream's process: JAAS contexts become settings, an authorizer
 * becomes Millstream's own, and the questions to the broker's authorizer, credentials and metrics go over the wire.
 */
final class Security {
    /** A listener for the harness itself, whose principal is a super user: tests say nothing of it. */
    static final String LISTENER = "HARNESS";
    private static final String SUPER_USER = "User:harness";

    private static final String STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer";
    /** Authorizers of tests that decide as the standard one does, or have a stand-in (standins.py). The rest aborts. */
    private static final Set<String> AUTHORIZERS = Set.of(
        STANDARD,
        "kafka.api.SslAdminIntegrationTest$TestableStandardAuthorizer",
        "kafka.server.AlterCredentialsTest$TestStandardAuthorizer",
        "kafka.server.DescribeCredentialsTest$TestStandardAuthorizer");

    private static final Map<String, List<String>> MECHANISMS = Map.of(
        "PlainLoginModule", List.of("PLAIN"),
        "ScramLoginModule", List.of("SCRAM-SHA-256", "SCRAM-SHA-512"),
        "OAuthBearerLoginModule", List.of("OAUTHBEARER"));

    /** A class of a test that knows users, and the users that it knows. */
    private static final String CALLBACK_HANDLER = "kafka.api.SaslPlainSslEndToEndAuthorizationTest$TestServerCallbackHandler";
    private static final String CALLBACK_USERS = String.format(
        "org.apache.kafka.common.security.plain.PlainLoginModule required user_%s=\"user1-password\" user_%s=\"%s\" user_%s=\"broker-password\";",
        JaasTestUtils.KAFKA_PLAIN_USER, JaasTestUtils.KAFKA_PLAIN_USER_2, JaasTestUtils.KAFKA_PLAIN_PASSWORD_2, JaasTestUtils.KAFKA_PLAIN_ADMIN);

    private Security() { }

    static boolean wanted(Map<String, String> protocols, Map<String, String> settings) {
        return settings.containsKey("authorizer.class.name") || protocols.values().stream().anyMatch(one -> !one.equals("PLAINTEXT"));
    }

    /** Settings that name Java's classes and contexts, in the words of a broker that has none. */
    static void translate(Map<String, String> protocols, Map<String, String> settings) {
        String authorizer = settings.get("authorizer.class.name");
        if (authorizer != null) {
            if (!AUTHORIZERS.contains(authorizer)) throw new TestAbortedException("EXCLUDED authorizer " + authorizer);
            settings.put("authorizer.class.name", STANDARD);
            settings.put("standins.authorizer", authorizer);
            settings.merge("super.users", SUPER_USER, (old, added) -> old + ";" + added);
        }
        protocols.forEach((listener, protocol) -> {
            if (protocol.startsWith("SASL")) jaas(listener, settings);
        });
    }

    private static void jaas(String listener, Map<String, String> settings) {
        String prefix = "listener.name." + listener.toLowerCase(Locale.ROOT) + ".";
        String enabled = settings.getOrDefault(prefix + "sasl.enabled.mechanisms", settings.getOrDefault("sasl.enabled.mechanisms", "GSSAPI"));
        List<String> mechanisms = List.of(enabled.split(","));
        if (mechanisms.contains("GSSAPI")) throw new TestAbortedException("EXCLUDED GSSAPI");
        AppConfigurationEntry[] entries = null;
        if (System.getProperty("java.security.auth.login.config") != null) {
            entries = Configuration.getConfiguration().getAppConfigurationEntry(listener.toLowerCase(Locale.ROOT) + ".KafkaServer");
            if (entries == null) entries = Configuration.getConfiguration().getAppConfigurationEntry("KafkaServer");
        }
        if (CALLBACK_HANDLER.equals(settings.remove(prefix + "plain.sasl.server.callback.handler.class")))
            settings.put(prefix + "plain.sasl.jaas.config", CALLBACK_USERS);
        for (AppConfigurationEntry entry : entries == null ? new AppConfigurationEntry[0] : entries) {
            StringBuilder text = new StringBuilder(entry.getLoginModuleName()).append(" required");
            entry.getOptions().forEach((name, value) -> text.append(' ').append(name).append("=\"").append(value).append('"'));
            String module = entry.getLoginModuleName().replaceAll(".*\\.", "");
            for (String mechanism : MECHANISMS.getOrDefault(module, List.of()))
                if (mechanisms.contains(mechanism))
                    settings.putIfAbsent(prefix + mechanism.toLowerCase(Locale.ROOT) + ".sasl.jaas.config", text + ";");
        }
        if (mechanisms.contains("OAUTHBEARER") && settings.keySet().stream().noneMatch(name -> name.endsWith("oauthbearer.jwks.endpoint.url")))
            // Kafka's default, which Millstream wants to see written down
            settings.putIfAbsent(prefix + "oauthbearer.sasl.server.callback.handler.class",
                "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler");
    }

    static scala.Option<Plugin<Authorizer>> authorizer(BrokerProcess process) {
        if (!process.authorizes()) return scala.Option.empty();
        Authorizer made = Fakes.fake(Authorizer.class, Map.of(
            "acls", (c, a) -> process.<Collection<AclBinding>>answer(admin -> admin.describeAcls((AclBindingFilter) a[0]).values()),
            "createAcls", (c, a) -> create(process, (List<?>) a[1]),
            "deleteAcls", (c, a) -> delete(process, (List<?>) a[1])));
        return scala.Option.apply(Plugin.wrapInstance(made, null, "authorizer.class.name"));
    }

    private static List<CompletionStage<AclCreateResult>> create(BrokerProcess process, List<?> bindings) {
        List<CompletionStage<AclCreateResult>> found = new ArrayList<>();
        for (Object one : bindings) {
            process.answer(admin -> admin.createAcls(List.of((AclBinding) one)).all());
            found.add(CompletableFuture.completedFuture(AclCreateResult.SUCCESS));
        }
        return found;
    }

    private static List<CompletionStage<AclDeleteResult>> delete(BrokerProcess process, List<?> filters) {
        List<CompletionStage<AclDeleteResult>> found = new ArrayList<>();
        for (Object one : filters) {
            Collection<AclBinding> gone = process.answer(admin -> admin.deleteAcls(List.of((AclBindingFilter) one)).all());
            found.add(CompletableFuture.completedFuture(
                new AclDeleteResult(gone.stream().map(AclDeleteResult.AclBindingDeleteResult::new).toList())));
        }
        return found;
    }

    /** The users with SCRAM credentials, as the broker names them; the keys themselves it tells nobody. */
    static CredentialProvider credentials(BrokerProcess process) {
        List<String> names = List.of("SCRAM-SHA-256", "SCRAM-SHA-512");
        CredentialProvider made = new CredentialProvider(names, tokens(process));
        process.answer(admin -> admin.describeUserScramCredentials().all()).forEach((user, described) ->
            described.credentialInfos().forEach(info ->
                made.updateCredential(info.mechanism(), user, new ScramCredential(new byte[1], new byte[1], new byte[1], info.iterations()))));
        return made;
    }

    /** The delegation tokens that there are now, as the broker describes them to a super user. */
    static DelegationTokenCache tokens(BrokerProcess process) {
        DelegationTokenCache made = new DelegationTokenCache(List.of("SCRAM-SHA-256", "SCRAM-SHA-512"));
        if (!process.secured()) return made;  // nobody there can have got one
        try {
            process.answer(admin -> admin.describeDelegationToken().delegationTokens()).forEach(token -> made.updateCache(token, Map.of()));
        } catch (DelegationTokenDisabledException e) {
            // there are none
        }
        return made;
    }

    /** Kafka's names of what Millstream counts; nothing else is there. */
    private static final Map<String, String> COUNTED = Map.of(
        "successful-authentication-total", "millstream_logins_total",
        "failed-authentication-total", "millstream_login_failures_total",
        "successful-reauthentication-total", "millstream_logins_again_total",
        "failed-reauthentication-total", "millstream_login_failures_total",
        "expired-connections-killed-count", "millstream_sessions_expired_total");

    static Metrics metrics(BrokerProcess process) {
        return Fakes.fake(Metrics.class, Map.of("metrics", (c, a) -> {
            Map<org.apache.kafka.common.MetricName, KafkaMetric> found = new HashMap<>();
            COUNTED.forEach((name, ours) -> {
                var full = new org.apache.kafka.common.MetricName(name, "socket-server-metrics", "", Map.of());
                double value = process.metric(ours);
                found.put(full, new KafkaMetric(new Object(), full, (Measurable) (config, now) -> value, new MetricConfig(), Time.SYSTEM));
            });
            return found;
        }));
    }

    static void register(BrokerProcess process) {
        MetricName name = KafkaYammerMetrics.getMetricName("kafka.network", "SocketServer", "ExpiredConnectionsKilledCount");
        KafkaYammerMetrics.defaultRegistry().removeMetric(name);
        KafkaYammerMetrics.defaultRegistry().newGauge(name, new Gauge<Double>() {
            @Override
            public Double value() { return process.metric("millstream_sessions_expired_total"); }
        });
    }
}
