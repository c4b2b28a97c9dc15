"""Broker settings about SASL: mechanisms, OAuth tokens, delegation tokens, and who may do what.

Most of them may carry a listener's prefix, `listener.name.<listener>.`, or a mechanism's,
`listener.name.<listener>.<mechanism>.`, and then apply there only.
"""

from millstream.settings.config_key import (
    BOOLEAN,
    CLASS,
    DOUBLE,
    HIGH,
    INT,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    PASSWORD,
    PER_BROKER,
    SHORT,
    STRING,
    ConfigKey,
)
from millstream.settings.values import Items, Range

_NO_JAVA = "Java classes cannot be loaded here."
_NO_CLIENT_OAUTH = "The broker does not fetch tokens for itself."

SASL = (
    ConfigKey(
        "sasl.enabled.mechanisms",
        LIST,
        "GSSAPI",
        "SASL mechanisms that clients may use.",
        Items(),
        MEDIUM,
        PER_BROKER,
    ),
    ConfigKey(
        "sasl.jaas.config",
        PASSWORD,
        None,
        "Users, passwords and options of a mechanism, in Java's JAAS notation. Carries a listener's and a "
        "mechanism's prefix: listener.name.sasl_ssl.plain.sasl.jaas.config.",
        None,
        MEDIUM,
        PER_BROKER,
    ),
    ConfigKey(
        "sasl.mechanism.inter.broker.protocol",
        STRING,
        "GSSAPI",
        "The mechanism between brokers.",
        None,
        MEDIUM,
        PER_BROKER,
    ),
    ConfigKey(
        "sasl.mechanism.controller.protocol",
        STRING,
        "GSSAPI",
        "The mechanism to Kafka's controller.",
        importance=HIGH,
        no_effect="Brokers reach the controller over the listener between brokers.",
    ),
    ConfigKey(
        "sasl.server.max.receive.size",
        INT,
        "524288",
        "The largest SASL message before a client has authenticated.",
    ),
    ConfigKey(
        "sasl.kerberos.service.name",
        STRING,
        None,
        "The Kerberos name of the broker's service.",
        None,
        MEDIUM,
        PER_BROKER,
    ),
    ConfigKey(
        "sasl.kerberos.principal.to.local.rules",
        LIST,
        "DEFAULT",
        "Rules that turn a Kerberos principal into a user name.",
        Items(),
        MEDIUM,
        PER_BROKER,
    ),
    ConfigKey(
        "sasl.kerberos.kinit.cmd",
        STRING,
        "/usr/bin/kinit",
        "The program that renews Kerberos tickets.",
        None,
        MEDIUM,
        PER_BROKER,
    ),
    ConfigKey(
        "sasl.kerberos.min.time.before.relogin",
        LONG,
        "60000",
        "The least time in ms between two renewals.",
        None,
        MEDIUM,
        PER_BROKER,
    ),
    ConfigKey(
        "sasl.kerberos.ticket.renew.jitter",
        DOUBLE,
        "0.05",
        "Share of random time in the moment of renewal.",
        None,
        MEDIUM,
        PER_BROKER,
    ),
    ConfigKey(
        "sasl.kerberos.ticket.renew.window.factor",
        DOUBLE,
        "0.8",
        "A ticket is renewed when this share of its life is over.",
        None,
        MEDIUM,
        PER_BROKER,
    ),
    ConfigKey(
        "sasl.login.refresh.window.factor",
        DOUBLE,
        "0.8",
        "A token is renewed when this share of its life is over.",
        None,
        MEDIUM,
        PER_BROKER,
    ),
    ConfigKey(
        "sasl.login.refresh.window.jitter",
        DOUBLE,
        "0.05",
        "Share of random time in that moment.",
        None,
        MEDIUM,
        PER_BROKER,
    ),
    ConfigKey(
        "sasl.login.refresh.min.period.seconds",
        SHORT,
        "60",
        "The least time between two renewals of a token.",
        None,
        MEDIUM,
        PER_BROKER,
    ),
    ConfigKey(
        "sasl.login.refresh.buffer.seconds",
        SHORT,
        "300",
        "A token is renewed at least this long before it expires.",
        None,
        MEDIUM,
        PER_BROKER,
    ),
    ConfigKey(
        "sasl.login.connect.timeout.ms", INT, None, "Connect timeout to the token server.", importance=LOW
    ),
    ConfigKey("sasl.login.read.timeout.ms", INT, None, "Read timeout from the token server.", importance=LOW),
    ConfigKey("sasl.login.retry.backoff.ms", LONG, "100", "First pause between tries at it.", importance=LOW),
    ConfigKey(
        "sasl.login.retry.backoff.max.ms", LONG, "10000", "Longest pause between tries.", importance=LOW
    ),
    ConfigKey("sasl.login.class", CLASS, None, "A Java class that logs in.", no_effect=_NO_JAVA),
    ConfigKey(
        "sasl.login.callback.handler.class",
        CLASS,
        None,
        "A Java class that answers questions of a login.",
        no_effect=_NO_JAVA,
    ),
    ConfigKey(
        "sasl.client.callback.handler.class",
        CLASS,
        None,
        "A Java class that answers questions of a SASL client.",
        no_effect=_NO_JAVA,
    ),
    ConfigKey(
        "sasl.server.callback.handler.class",
        CLASS,
        None,
        "A Java class that checks credentials. One counts here, by its name: "
        "OAuthBearerUnsecuredValidatorCallbackHandler, with which a listener believes unsigned tokens.",
    ),
)

OAUTH = (
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.url", STRING, None, "Where the keys that sign tokens are published."
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        LONG,
        "3600000",
        "How long these keys are kept before they are read again.",
        importance=LOW,
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        LONG,
        "100",
        "First pause between tries at reading them.",
        importance=LOW,
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        LONG,
        "10000",
        "Longest pause between tries.",
        importance=LOW,
    ),
    ConfigKey(
        "sasl.oauthbearer.expected.audience",
        LIST,
        "",
        "Audiences of which a token must name one.",
        Items(),
        LOW,
    ),
    ConfigKey(
        "sasl.oauthbearer.expected.issuer", STRING, None, "The issuer a token must name.", importance=LOW
    ),
    ConfigKey(
        "sasl.oauthbearer.clock.skew.seconds",
        INT,
        "30",
        "How far the clocks of token server and broker may differ.",
        importance=LOW,
    ),
    ConfigKey(
        "sasl.oauthbearer.scope.claim.name",
        STRING,
        "scope",
        "The claim of a token that lists its scopes.",
        importance=LOW,
    ),
    ConfigKey(
        "sasl.oauthbearer.sub.claim.name",
        STRING,
        "sub",
        "The claim of a token that names the user.",
        importance=LOW,
    ),
    ConfigKey(
        "sasl.oauthbearer.token.endpoint.url",
        STRING,
        None,
        "Where tokens are issued.",
        no_effect=_NO_CLIENT_OAUTH,
    ),
    ConfigKey("sasl.oauthbearer.scope", STRING, None, "The scope to ask for.", no_effect=_NO_CLIENT_OAUTH),
    ConfigKey(
        "sasl.oauthbearer.client.credentials.client.id",
        STRING,
        None,
        "The client to ask as.",
        no_effect=_NO_CLIENT_OAUTH,
    ),
    ConfigKey(
        "sasl.oauthbearer.client.credentials.client.secret",
        PASSWORD,
        None,
        "Its secret.",
        no_effect=_NO_CLIENT_OAUTH,
    ),
    ConfigKey(
        "sasl.oauthbearer.jwt.validator.class",
        CLASS,
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
        "A Java class that checks tokens.",
        no_effect=_NO_JAVA,
    ),
    ConfigKey(
        "sasl.oauthbearer.jwt.retriever.class",
        CLASS,
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
        "A Java class that fetches tokens.",
        no_effect=_NO_JAVA,
    ),
)

AUTHORIZATION = (
    ConfigKey(
        "authorizer.class.name",
        STRING,
        "",
        "Empty: everybody may do everything. Kafka's StandardAuthorizer, by name: access control lists "
        "count.",
        importance=LOW,
    ),
    ConfigKey(
        "super.users",
        STRING,
        "",
        "Principals that may do everything, separated by semicolons: User:admin;User:CN=ops.",
        hidden=True,
    ),
    ConfigKey(
        "allow.everyone.if.no.acl.found",
        BOOLEAN,
        "false",
        "Whether a resource without any access control list is open to everybody.",
        hidden=True,
    ),
    ConfigKey(
        "principal.builder.class",
        CLASS,
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        "A Java class that names the user of a connection.",
        None,
        MEDIUM,
        PER_BROKER,
        no_effect=_NO_JAVA,
    ),
    ConfigKey(
        "delegation.token.secret.key",
        PASSWORD,
        None,
        "The secret that signs delegation tokens, the same on all brokers. Without it there are none.",
    ),
    ConfigKey(
        "delegation.token.expiry.time.ms",
        LONG,
        "86400000",
        "How long a token is good for before it must be renewed.",
        Range(1),
    ),
    ConfigKey(
        "delegation.token.max.lifetime.ms",
        LONG,
        "604800000",
        "How long a token can be renewed.",
        Range(1),
    ),
    ConfigKey(
        "delegation.token.expiry.check.interval.ms",
        LONG,
        "3600000",
        "How often expired tokens are removed.",
        Range(1),
        LOW,
    ),
)
