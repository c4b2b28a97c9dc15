"""The proxy's settings: Confluent's names, types and defaults in one table. Our own are marked in their
text."""

from millstream.client import ClientConfig
from millstream.http.service_config import (
    AUTHENTICATION_KEYS,
    BOOLEAN,
    BROWSER_KEYS,
    INT,
    LIMIT_KEYS,
    LIST,
    LOGGING_KEYS,
    PASSWORD,
    RESPONSE_KEYS,
    STRING,
    TLS_KEYS,
    ServiceConfig,
    ServiceConfigKey,
)
from millstream.settings.values import InvalidSetting

KEYS: dict[str, ServiceConfigKey] = {
    "listeners": ServiceConfigKey(
        LIST, "http://0.0.0.0:8082", "Addresses to listen on: http://host:port, https://host:port."
    ),
    "advertised.listeners": ServiceConfigKey(
        LIST, "", "Addresses in responses (base_uri, self, related); default: the ones the client used."
    ),
    "host.name": ServiceConfigKey(STRING, "", "Like advertised.listeners, but only the host name."),
    "id": ServiceConfigKey(
        STRING, "", "Part of the generated names of consumer instances that are created without one."
    ),
    "bootstrap.servers": ServiceConfigKey(LIST, "localhost:9092", "The Kafka cluster."),
    "schema.registry.url": ServiceConfigKey(
        LIST, "http://localhost:8081", "One or more addresses of the Schema Registry."
    ),
    "schema.registry.basic.auth.user.info": ServiceConfigKey(
        PASSWORD, None, "User and password for the Schema Registry: `user:password`."
    ),
    "schema.registry.basic.auth.credentials.source": ServiceConfigKey(
        STRING,
        "USER_INFO",
        "USER_INFO: schema.registry.basic.auth.user.info. SASL_INHERIT: the login with which the cluster is "
        "reached, which is the caller's where callers are users of the cluster.",
    ),
    "schema.registry.ssl.truststore.location": ServiceConfigKey(
        STRING, None, "Certificates to trust when connecting to the Schema Registry (PEM)."
    ),
    "schema.registry.request.timeout.ms": ServiceConfigKey(
        INT, "10000", "Ours: how long to wait for the Schema Registry."
    ),
    "consumer.instance.timeout.ms": ServiceConfigKey(
        INT, "300000", "An instance without requests for this long is closed."
    ),
    "consumer.request.timeout.ms": ServiceConfigKey(
        INT, "1000", "How long a request for records may wait, unless its instance says otherwise."
    ),
    "consumer.request.max.bytes": ServiceConfigKey(
        INT, "67108864", "The largest response to a request for records."
    ),
    "consumer.threads": ServiceConfigKey(INT, "50", "Threads for blocking calls of consumer instances."),
    "consumer.instances.max": ServiceConfigKey(
        INT, "500", "Ours: how many consumer instances may exist at the same time."
    ),
    "consumer.instances.per.caller": ServiceConfigKey(
        INT, "100", "Ours: how many of them one caller may have, where callers are users of the cluster."
    ),
    "consumer.prefetch.kbytes": ServiceConfigKey(INT, "1024", "Ours: how much an instance fetches ahead."),
    "fetch.min.bytes": ServiceConfigKey(
        INT, "-1", "Respond once this many bytes are available; -1: as soon as there is a record."
    ),
    "confluent.rest.auth.propagate.method": ServiceConfigKey(
        STRING,
        "JETTY_AUTH",
        "JETTY_AUTH: callers who are users of the cluster act as themselves. SSL is not supported.",
    ),
    "producer.threads": ServiceConfigKey(INT, "5", "Not needed; accepted because Confluent's proxy has it."),
    "api.v2.enable": ServiceConfigKey(BOOLEAN, "true", "Whether version 2 of the API is served."),
    "api.v3.enable": ServiceConfigKey(BOOLEAN, "true", "Whether version 3 of the API is served."),
    "api.v3.produce.batch.maximum.entries": ServiceConfigKey(
        INT, "10", "The largest number of entries in records:batch."
    ),
    "streaming.connection.max.duration.ms": ServiceConfigKey(
        INT, "86400000", "How long a stream of records may last."
    ),
    "confluent.resource.name.authority": ServiceConfigKey(
        STRING, "", "The authority in `crn://` names of version 3."
    ),
    **LIMIT_KEYS,
    **RESPONSE_KEYS,
    **AUTHENTICATION_KEYS,
    **TLS_KEYS,
    **BROWSER_KEYS,
    **LOGGING_KEYS,
}


_CHOICES = {
    "confluent.rest.auth.propagate.method": ("JETTY_AUTH",),
    "schema.registry.basic.auth.credentials.source": ("USER_INFO", "SASL_INHERIT"),
}


class RestConfig(ServiceConfig):
    """`client.*` goes to all Kafka clients, `producer.*`, `consumer.*` and `admin.*` to those of a
    purpose."""

    keys = KEYS
    prefixes = ("client.", "producer.", "consumer.", "admin.")
    default_port = 8082

    def __init__(self, given: dict[str, str]) -> None:
        super().__init__(given)
        for name, known in _CHOICES.items():
            if str(self.value(name)).upper() not in known:
                raise InvalidSetting(name, str(self.value(name)), f"use {' or '.join(known)}")
        self.bootstrap = ",".join(self.value("bootstrap.servers"))

    def client(self) -> ClientConfig:
        """For our own client, which asks about topics, settings and groups."""
        properties = {"default.api.timeout.ms": "15000", "request.timeout.ms": "10000"}
        properties |= self.with_prefix("client.") | self.with_prefix("admin.")
        return ClientConfig.of(self.bootstrap, properties, "rest-proxy")

    def for_clients(self, prefix: str) -> dict[str, str]:
        """Kafka's names for a producer or a consumer, without what is the proxy's own."""
        own = {name: text for name, text in self.with_prefix(prefix).items() if prefix + name not in KEYS}
        return self.with_prefix("client.") | own
