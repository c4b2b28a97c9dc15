"""Settings of an HTTP service: a table of names, types and defaults, and the rows that every service has."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from millstream.settings.values import InvalidSetting, Type, parse


@dataclass(frozen=True, slots=True)
class Setting:
    type: Type
    default: str | None
    text: str


S, INT, B, LIST, P = Type.STRING, Type.INT, Type.BOOLEAN, Type.LIST, Type.PASSWORD
LIMITS: dict[str, Setting] = {
    "max.request.size": Setting(INT, "10485760", "Ours: the largest body of a request, in bytes."),
}
USERS: dict[str, Setting] = {
    "authentication.method": Setting(S, "NONE", "NONE or BASIC."),
    "authentication.realm": Setting(S, "millstream", "What a browser shows when it asks for the password."),
    "authentication.roles": Setting(LIST, "*", "The roles that may use the service; * for every user."),
    "authentication.user.file": Setting(
        S, None, "Ours: the users, one a line, as Jetty's property file has them: `name: password,role,role`."
    ),
    "authentication.readonly.roles": Setting(
        LIST, "readonly", "Ours: users with one of these roles, and none other, may read only."
    ),
    "authentication.skip.paths": Setting(LIST, "", "Paths that need no password."),
}
TLS: dict[str, Setting] = {
    "ssl.keystore.location": Setting(S, None, "The server's key and certificates: a PEM file, or PKCS12."),
    "ssl.keystore.type": Setting(S, "PEM", "PEM or PKCS12."),
    "ssl.keystore.password": Setting(P, None, "The password of a PKCS12 file."),
    "ssl.key.password": Setting(P, None, "The password of the key."),
    "ssl.truststore.location": Setting(
        S, None, "Certificates to trust (PEM): of clients, and of the other instances."
    ),
    "ssl.client.authentication": Setting(S, "NONE", "NONE, REQUESTED or REQUIRED."),
}
PAGES: dict[str, Setting] = {
    "access.control.allow.origin": Setting(
        S, "", "Which web pages may use the service from a browser (CORS)."
    ),
    "access.control.allow.methods": Setting(S, "", "The methods that they may use."),
}
LOGGING: dict[str, Setting] = {
    "log.level": Setting(S, "INFO", "Ours: DEBUG, INFO, WARNING or ERROR."),
    "debug": Setting(B, "false", "The same as log.level=DEBUG."),
}


@dataclass(frozen=True, slots=True)
class Listener:
    scheme: str
    host: str
    port: int


class HttpSettings:
    """Typed values. A value that makes no sense is an InvalidSetting, a name that is not known a warning."""

    def __init__(
        self, table: Mapping[str, Setting], given: dict[str, str], prefixes: Iterable[str], port: int
    ) -> None:
        self.given = given
        known = tuple(prefixes)
        self.unknown = sorted(name for name in given if name not in table and not name.startswith(known))
        self._values: dict[str, Any] = {}
        for name, setting in table.items():
            text = given.get(name, setting.default)
            self._values[name] = None if text is None else parse(name, setting.type, text)
        self.listeners = [_listener(text, port) for text in self._values["listeners"]]
        if not self.listeners:
            raise InvalidSetting("listeners", "", "at least one is needed")

    def value(self, name: str) -> Any:
        return self._values[name]

    def secret(self, name: str) -> str | None:
        value = self._values[name]
        return None if value is None else str(value.value if hasattr(value, "value") else value)

    def with_prefix(self, prefix: str) -> dict[str, str]:
        """What was given under a prefix, without it."""
        return {name[len(prefix) :]: text for name, text in self.given.items() if name.startswith(prefix)}

    @property
    def log_level(self) -> str:
        return "DEBUG" if self.value("debug") else str(self.value("log.level")).upper()


def _listener(text: str, default_port: int) -> Listener:
    parts = urlsplit(text)
    try:
        port = parts.port
    except ValueError:
        port = None
    if parts.scheme not in ("http", "https") or parts.path not in ("", "/"):
        raise InvalidSetting("listeners", text, "use http://host:port or https://host:port")
    return Listener(parts.scheme, parts.hostname or "0.0.0.0", default_port if port is None else port)  # noqa: S104
