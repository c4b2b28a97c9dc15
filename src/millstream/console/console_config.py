"""The console's settings, in one table. `client.*` goes to the Kafka client: client.security.protocol,
client.ssl.* ..."""

import os
import secrets
from urllib.parse import quote, urlsplit

from millstream.client import ClientConfig
from millstream.http.cluster_authentication import METHODS
from millstream.http.service_config import (
    AUTHENTICATION_KEYS,
    BOOLEAN,
    INT,
    LIMIT_KEYS,
    LIST,
    LOGGING_KEYS,
    PASSWORD,
    STRING,
    TLS_KEYS,
    ServiceConfig,
    ServiceConfigKey,
)
from millstream.settings.values import InvalidSetting

CLIENT = "client."
REGISTRY_LOGIN = "schema.registry.basic.auth.user.info"

KEYS: dict[str, ServiceConfigKey] = {
    "listeners": ServiceConfigKey(
        LIST, "http://127.0.0.1:8080", "Addresses to listen on: http://host:port, https://host:port."
    ),
    "bootstrap.servers": ServiceConfigKey(
        LIST, "localhost:9092", "The cluster to show: host:port,host:port."
    ),
    "schema.registry.url": ServiceConfigKey(
        STRING,
        "",
        "The Schema Registry, http://host:port (user:password@ in front of the host if it wants one).",
    ),
    "schema.registry.basic.auth.user.info": ServiceConfigKey(
        PASSWORD, None, "User and password for the Schema Registry: `user:password`."
    ),
    "schema.registry.ssl.truststore.location": ServiceConfigKey(
        STRING, None, "Certificates to trust when connecting to the Schema Registry (PEM)."
    ),
    "cluster.name": ServiceConfigKey(STRING, "", "What the console calls the cluster; its id by default."),
    "read.only": ServiceConfigKey(BOOLEAN, "false", "Nobody can change anything by this console."),
    "users.file": ServiceConfigKey(
        STRING,
        None,
        "Who may log in; see `millstream console hash-password`. Without it, and without "
        "authentication.method, anyone.",
    ),
    "authentication.method": ServiceConfigKey(
        LIST,
        "NONE",
        "BASIC: people log in as users of the cluster, or by API keys. BEARER: programs by a token. "
        "CERTIFICATE: both by client certificate. NONE: users.file says who may come.",
    ),
    "authentication.sasl.mechanisms": AUTHENTICATION_KEYS["authentication.sasl.mechanisms"],
    "login.failures.per.address": ServiceConfigKey(
        INT,
        "20",
        "Wrong passwords from one address before it has to wait. 0: no limit, for use behind a proxy.",
    ),
    "session.hours": ServiceConfigKey(INT, "12", "How long a login lasts."),
    "session.secret": ServiceConfigKey(
        PASSWORD, None, "Signs the cookies. Random by default, so a restart ends every login."
    ),
    "allowed.hosts": ServiceConfigKey(
        LIST,
        "",
        "Names under which browsers reach the console, besides addresses, localhost, the machine's name "
        "and those that the listeners have; * for any.",
    ),
    "masking.file": ServiceConfigKey(STRING, None, "Rules that say which parts of messages are not shown."),
    "pipelines.topic": ServiceConfigKey(
        STRING, "__millstream_pipelines", "Where pipelines report on themselves."
    ),
    "metrics.urls": ServiceConfigKey(
        LIST, "", "Metrics of other services to show: name=http://host:port/metrics, separated by commas."
    ),
    "metrics.ssl.truststore.location": ServiceConfigKey(
        STRING, None, "Certificates to trust when reading metrics by https (PEM)."
    ),
    "sample.interval.ms": ServiceConfigKey(INT, "2000", "How often offsets are looked at, at most."),
    "search.concurrent": ServiceConfigKey(INT, "3", "Searches that may run at a time."),
    "search.max.hits": ServiceConfigKey(INT, "500", "A search stops after this many hits."),
    "tail.concurrent": ServiceConfigKey(INT, "20", "Live tails that may be open at a time."),
    "message.show.bytes": ServiceConfigKey(
        INT, "65536", "Longer keys and values are cut; the rest is a download away."
    ),
    "request.timeout.ms": ServiceConfigKey(INT, "10000", "How long one answer of a broker may take."),
    **LIMIT_KEYS,
    **TLS_KEYS,
    **LOGGING_KEYS,
}


class ConsoleConfig(ServiceConfig):
    """Typed values. A value that makes no sense is an InvalidSetting, a name that is not known a warning."""

    keys = KEYS
    prefixes = (CLIENT,)
    default_port = 8080

    def __init__(self, given: dict[str, str]) -> None:
        super().__init__(given)
        for name in (
            "sample.interval.ms",
            "search.concurrent",
            "search.max.hits",
            "session.hours",
            "message.show.bytes",
        ):
            if self.value(name) < 1:
                raise InvalidSetting(name, str(self.value(name)), "at least 1")
        if self.value("login.failures.per.address") < 0:
            raise InvalidSetting(
                "login.failures.per.address", str(self.value("login.failures.per.address")), "at least 0"
            )
        for method in self.methods:
            if method not in METHODS:
                raise InvalidSetting(
                    "authentication.method", method, f"use NONE, or a list of {', '.join(METHODS)}"
                )
        if self.cluster_users and self.value("users.file"):
            raise InvalidSetting(
                "users.file", str(self.value("users.file")), "not beside authentication.method: choose one"
            )
        secret = self._values["session.secret"]
        self.signing: bytes = secret.value.encode() if secret is not None else secrets.token_bytes(32)
        self.metrics_urls = dict(_metrics_url(item) for item in self._values["metrics.urls"])

    @property
    def cluster_users(self) -> bool:
        """Whether people log in as users of the cluster."""
        return bool(self.methods)

    @property
    def methods(self) -> list[str]:
        """How users of the cluster come in."""
        given = [str(one).upper() for one in self.value("authentication.method")]
        return [one for one in given if one != "NONE"]

    @property
    def registry_url(self) -> str:
        """With user and password, if there are some."""
        url, login = str(self.value("schema.registry.url")), self.secret(REGISTRY_LOGIN)
        if not url or not login:
            return url
        user, _, password = login.partition(":")
        parts = urlsplit(url)
        return parts._replace(
            netloc=f"{quote(user, safe='')}:{quote(password, safe='')}@{parts.netloc.rpartition('@')[2]}"
        ).geturl()

    @property
    def bootstrap(self) -> str:
        return ",".join(self.value("bootstrap.servers"))

    def client(self, name: str = "millstream-console") -> ClientConfig:
        """People wait for the answer: a cluster that is away is said to be so within seconds."""
        timeout = str(self.value("request.timeout.ms"))
        return ClientConfig.of(
            self.bootstrap,
            {
                "request.timeout.ms": timeout,
                "default.api.timeout.ms": str(min(4000, int(timeout))),
                "socket.connection.setup.timeout.ms": str(min(3000, int(timeout))),
                **self.with_prefix(CLIENT),
            },
            name,
        )


def _metrics_url(item: str) -> tuple[str, str]:
    name, equals, url = item.partition("=")
    if not equals or urlsplit(url).scheme not in ("http", "https"):
        raise InvalidSetting("metrics.urls", item, "use name=http://host:port/metrics")
    return name.strip(), url.strip()


def readable(path: str) -> str:
    """The text of a file that a setting names. OSError with the path where it cannot be read."""
    with open(os.path.expanduser(path), encoding="utf-8") as file:
        return file.read()
