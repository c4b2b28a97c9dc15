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
class ConfigKey:
    """One row of a service's table, as ConfigDef.ConfigKey is in Kafka."""

    type: Type
    default: str | None
    documentation: str


LIMIT_KEYS: dict[str, ConfigKey] = {
    "max.request.size": ConfigKey(INT, "10485760", "Ours: the largest body of a request, in bytes."),
}
RESPONSE_KEYS: dict[str, ConfigKey] = {
    "response.http.headers.config": ConfigKey(
        STRING,
        "",
        "Headers for every response: `set` or `add`, then `name: value`; separated by commas, in double "
        "quotes where the value has some.",
    ),
}
AUTHENTICATION_KEYS: dict[str, ConfigKey] = {
    "authentication.method": ConfigKey(
        LIST,
        "NONE",
        "NONE, BASIC, BEARER, or BASIC,BEARER. Without authentication.user.file the users are those of the "
        "cluster, and their API keys.",
    ),
    "authentication.realm": ConfigKey(
        STRING, "millstream", "What a browser shows when it asks for the password."
    ),
    "authentication.roles": ConfigKey(LIST, "*", "The roles that may use the service; * for every user."),
    "authentication.user.file": ConfigKey(
        STRING,
        None,
        "Ours: the users, one per line, as Jetty's property file has them: `name: password,role,role`.",
    ),
    "authentication.readonly.roles": ConfigKey(
        LIST, "readonly", "Ours: users who have only these roles may read but not write."
    ),
    "authentication.skip.paths": ConfigKey(LIST, "", "Paths that need no password."),
    "authentication.failures.per.address": ConfigKey(
        INT,
        "20",
        "Ours: wrong passwords from one address before it has to wait, for users of the cluster. 0: no "
        "limit, for use behind a proxy that has one.",
    ),
}
TLS_KEYS: dict[str, ConfigKey] = {
    "ssl.keystore.location": ConfigKey(
        STRING, None, "The server's key and certificates: a PEM file, or PKCS12."
    ),
    "ssl.keystore.type": ConfigKey(STRING, "PEM", "PEM or PKCS12."),
    "ssl.keystore.password": ConfigKey(PASSWORD, None, "The password of a PKCS12 file."),
    "ssl.key.password": ConfigKey(PASSWORD, None, "The password of the key."),
    "ssl.truststore.location": ConfigKey(
        STRING, None, "Certificates to trust (PEM): of clients, and of the other instances."
    ),
    "ssl.client.authentication": ConfigKey(STRING, "NONE", "NONE, REQUESTED or REQUIRED."),
}
BROWSER_KEYS: dict[str, ConfigKey] = {
    "allowed.hosts": ConfigKey(
        LIST,
        "",
        "Ours: names under which browsers reach the service, besides addresses, localhost, the machine's "
        "name and those that the listeners have; * for any.",
    ),
    "access.control.allow.origin": ConfigKey(
        STRING, "", "Which web pages may use the service from a browser (CORS)."
    ),
    "access.control.allow.methods": ConfigKey(STRING, "", "The methods those pages may use."),
}
LOGGING_KEYS: dict[str, ConfigKey] = {
    "log.level": ConfigKey(STRING, "INFO", "Ours: DEBUG, INFO, WARNING or ERROR."),
    "debug": ConfigKey(BOOLEAN, "false", "The same as log.level=DEBUG."),
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

    keys: ClassVar[Mapping[str, ConfigKey]]
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
