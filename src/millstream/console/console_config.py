"""The console's settings, in one table. `client.*` goes to the Kafka client: client.security.protocol,
client.ssl.* ..."""

import os
import secrets
from urllib.parse import quote, urlsplit

from millstream.client import ClientConfig
from millstream.http.service_config import (
    BOOLEAN,
    INT,
    LIMIT_KEYS,
    LIST,
    LOGGING_KEYS,
    PASSWORD,
    STRING,
    TLS_KEYS,
    ConfigKey,
    ServiceConfig,
)
from millstream.settings.values import InvalidSetting

CLIENT = "client."
REGISTRY_LOGIN = "schema.registry.basic.auth.user.info"

KEYS: dict[str, ConfigKey] = {
    "listeners": ConfigKey(
        LIST, "http://127.0.0.1:8080", "Addresses to listen on: http://host:port, https://host:port."
    ),
    "bootstrap.servers": ConfigKey(LIST, "localhost:9092", "The cluster to show: host:port,host:port."),
    "schema.registry.url": ConfigKey(
        STRING,
        "",
        "The Schema Registry, http://host:port (user:password@ in front of the host if it wants one).",
    ),
    "schema.registry.basic.auth.user.info": ConfigKey(
        PASSWORD, None, "User and password for the Schema Registry: `user:password`."
    ),
    "cluster.name": ConfigKey(STRING, "", "What the console calls the cluster; its id by default."),
    "read.only": ConfigKey(BOOLEAN, "false", "Nobody can change anything by this console."),
    "users.file": ConfigKey(
        STRING,
        None,
        "Who may log in; see `millstream console hash-password`. Without it, and without "
        "authentication.method, anyone.",
    ),
    "authentication.method": ConfigKey(
        STRING,
        "NONE",
        "BASIC: people log in as users of the cluster, or by API keys. NONE: users.file says who may come.",
    ),
    "login.failures.per.address": ConfigKey(
        INT,
        "20",
        "Wrong passwords from one address before it has to wait. 0: no limit, for use behind a proxy.",
    ),
    "session.hours": ConfigKey(INT, "12", "How long a login lasts."),
    "session.secret": ConfigKey(
        PASSWORD, None, "Signs the cookies. Random by default, so a restart ends every login."
    ),
    "allowed.hosts": ConfigKey(
        LIST,
        "",
        "Names under which browsers reach the console, besides addresses, localhost, the machine's name "
        "and those that the listeners have; * for any.",
    ),
    "masking.file": ConfigKey(STRING, None, "Rules that say which parts of messages are not shown."),
    "pipelines.topic": ConfigKey(STRING, "__millstream_pipelines", "Where pipelines report on themselves."),
    "metrics.urls": ConfigKey(
        LIST, "", "Metrics of other services to show: name=http://host:port/metrics, separated by commas."
    ),
    "sample.interval.ms": ConfigKey(INT, "2000", "How often offsets are looked at, at most."),
    "search.concurrent": ConfigKey(INT, "3", "Searches that may run at a time."),
    "search.max.hits": ConfigKey(INT, "500", "A search stops after this many hits."),
    "tail.concurrent": ConfigKey(INT, "20", "Live tails that may be open at a time."),
    "message.show.bytes": ConfigKey(
        INT, "65536", "Longer keys and values are cut; the rest is a download away."
    ),
    "request.timeout.ms": ConfigKey(INT, "10000", "How long one answer of a broker may take."),
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
        if str(self.value("authentication.method")).upper() not in ("NONE", "BASIC"):
            raise InvalidSetting(
                "authentication.method", str(self.value("authentication.method")), "use NONE or BASIC"
            )
        if self.cluster_users and self.value("users.file"):
            raise InvalidSetting("users.file", str(self.value("users.file")), "not beside BASIC: choose one")
        secret = self._values["session.secret"]
        self.signing: bytes = secret.value.encode() if secret is not None else secrets.token_bytes(32)
        self.metrics_urls = dict(_metrics_url(item) for item in self._values["metrics.urls"])

    @property
    def cluster_users(self) -> bool:
        """Whether people log in as users of the cluster."""
        return str(self.value("authentication.method")).upper() == "BASIC"

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
