"""Configuration of an HTTP service: a table of keys with types and defaults, and the keys that every service
has."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import urlsplit

from millstream.http.host_names import HostNames
from millstream.settings.values import InvalidSetting, Type, parse

BOOLEAN, INT, LIST, PASSWORD, STRING = Type.BOOLEAN, Type.INT, Type.LIST, Type.PASSWORD, Type.STRING


@dataclass(frozen=True, slots=True)
class ServiceConfigKey:
    """One row of a service's table, as ConfigDef.ServiceConfigKey is in Kafka."""

    type: Type
    default: str | None
    documentation: str


LIMIT_KEYS: dict[str, ServiceConfigKey] = {
    "max.request.size": ServiceConfigKey(INT, "10485760", "Ours: the largest body of a request, in bytes."),
}
RESPONSE_KEYS: dict[str, ServiceConfigKey] = {
    "response.http.headers.config": ServiceConfigKey(
        STRING,
        "",
        "Headers for every response: `set` or `add`, then `name: value`; separated by commas, in double "
        "quotes where the value has some.",
    ),
}
AUTHENTICATION_KEYS: dict[str, ServiceConfigKey] = {
    "authentication.method": ServiceConfigKey(
        LIST,
        "NONE",
        "NONE, or a list of BASIC, BEARER and CERTIFICATE. Without authentication.user.file the users are "
        "those of the cluster, and their API keys. CERTIFICATE (ours): by client certificate.",
    ),
    "authentication.realm": ServiceConfigKey(
        STRING, "millstream", "What a browser shows when it asks for the password."
    ),
    "authentication.roles": ServiceConfigKey(
        LIST, "*", "The roles that may use the service; * for every user."
    ),
    "authentication.user.file": ServiceConfigKey(
        STRING,
        None,
        "Ours: the users, one per line, as Jetty's property file has them: `name: password,role,role`.",
    ),
    "authentication.readonly.roles": ServiceConfigKey(
        LIST, "readonly", "Ours: users who have only these roles may read but not write."
    ),
    "authentication.sasl.mechanisms": ServiceConfigKey(
        LIST,
        "",
        "Ours: how passwords of users of the cluster are tried at the broker, in this order: SCRAM-SHA-512, "
        "SCRAM-SHA-256, PLAIN. Empty: all that the listener offers, PLAIN only over TLS or if the service "
        "itself logs in by it.",
    ),
    "authentication.skip.paths": ServiceConfigKey(LIST, "", "Paths that need no password."),
    "authentication.failures.per.address": ServiceConfigKey(
        INT,
        "20",
        "Ours: wrong passwords from one address before it has to wait, for users of the cluster. 0: no "
        "limit, for use behind a proxy that has one.",
    ),
}
TLS_KEYS: dict[str, ServiceConfigKey] = {
    "ssl.keystore.location": ServiceConfigKey(
        STRING, None, "The server's key and certificates: a PEM file, or PKCS12."
    ),
    "ssl.keystore.type": ServiceConfigKey(STRING, "PEM", "PEM or PKCS12."),
    "ssl.keystore.password": ServiceConfigKey(PASSWORD, None, "The password of a PKCS12 file."),
    "ssl.key.password": ServiceConfigKey(PASSWORD, None, "The password of the key."),
    "ssl.truststore.location": ServiceConfigKey(
        STRING, None, "Certificates to trust (PEM): of clients, and of the other instances."
    ),
    "ssl.client.authentication": ServiceConfigKey(STRING, "NONE", "NONE, REQUESTED or REQUIRED."),
    "ssl.principal.mapping.rules": ServiceConfigKey(
        STRING,
        "DEFAULT",
        "From a client certificate's subject to a user name, by the broker's rules: "
        "RULE:pattern/replacement/[LU], or DEFAULT.",
    ),
}
HTTPS_PREFIX = "listeners.https."
BROWSER_KEYS: dict[str, ServiceConfigKey] = {
    "allowed.hosts": ServiceConfigKey(
        LIST,
        "",
        "Ours: names under which browsers reach the service, besides addresses, localhost, the machine's "
        "name and those that the listeners have; * for any.",
    ),
    "access.control.allow.origin": ServiceConfigKey(
        STRING, "", "Which web pages may use the service from a browser (CORS)."
    ),
    "access.control.allow.methods": ServiceConfigKey(STRING, "", "The methods those pages may use."),
}
LOGGING_KEYS: dict[str, ServiceConfigKey] = {
    "log.level": ServiceConfigKey(STRING, "INFO", "Ours: DEBUG, INFO, WARNING or ERROR."),
    "debug": ServiceConfigKey(BOOLEAN, "false", "The same as log.level=DEBUG."),
}


@dataclass(frozen=True, slots=True)
class HttpListener:
    scheme: str
    host: str
    port: int


class ServiceConfig:
    """Typed values. InvalidSetting for a value that makes no sense; a name that is not known only gets a
    warning.

    A service names its `keys`, the `prefixes` under which it takes any name (those of Kafka clients), and the
    port of a listener that has none.
    """

    keys: ClassVar[Mapping[str, ServiceConfigKey]]
    prefixes: ClassVar[tuple[str, ...]]
    default_port: ClassVar[int]

    def __init__(self, given: dict[str, str]) -> None:
        self.given = given
        self.unknown = sorted(
            name for name in given if name not in self.keys and not name.startswith(self.prefixes)
        )
        self._values: dict[str, Any] = {}
        for name, key in self.keys.items():
            text = given.get(name, key.default)
            self._values[name] = None if text is None else parse(name, key.type, text)
        self.listeners = [_parse_listener(text, self.default_port) for text in self._values["listeners"]]
        if not self.listeners:
            raise InvalidSetting("listeners", "", "at least one is needed")

    def value(self, name: str) -> Any:
        return self._values[name]

    @property
    def host_names(self) -> HostNames:
        """The names under which browsers may reach the service: those that a setting gives it."""
        bound = [listener.host for listener in self.listeners]
        advertised = [
            urlsplit(text).hostname or "" for text in self._values.get("advertised.listeners") or ()
        ]
        named = [self._values.get("host.name") or "", *advertised, *self.value("allowed.hosts")]
        return HostNames(bound, filter(None, named))

    def secret(self, name: str) -> str | None:
        value = self._values[name]
        return None if value is None else str(value.value if hasattr(value, "value") else value)

    def tls(self, name: str) -> str:
        """A setting of HTTPS listeners; empty if it is not set. All or none of them may have Kafka Connect's
        prefix `listeners.https.`, for a service whose Kafka clients have the names without it."""
        prefixed = self.with_prefix(HTTPS_PREFIX)
        if prefixed:
            default = self.keys[name].default if name in self.keys else None
            return prefixed.get(name, default or "")
        if name not in self.keys:
            return self.given.get(name, "")
        return self.secret(name) or ""

    def with_prefix(self, prefix: str) -> dict[str, str]:
        """What was given under a prefix, without the prefix."""
        return {name[len(prefix) :]: text for name, text in self.given.items() if name.startswith(prefix)}

    @property
    def log_level(self) -> str:
        return "DEBUG" if self.value("debug") else str(self.value("log.level")).upper()


def _parse_listener(text: str, default_port: int) -> HttpListener:
    parts = urlsplit(text)
    try:
        port = parts.port
    except ValueError:
        port = None
    if parts.scheme not in ("http", "https") or parts.path not in ("", "/"):
        raise InvalidSetting("listeners", text, "use http://host:port or https://host:port")
    host = parts.hostname or "0.0.0.0"  # noqa: S104
    return HttpListener(parts.scheme, host, default_port if port is None else port)
