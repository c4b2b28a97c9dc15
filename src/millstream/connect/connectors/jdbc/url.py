"""JDBC URLs: which database, where. No error names what is behind the `?`: that may be a password."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from millstream.connect.config.config_def import ConfigError

PORTS = {"postgresql": 5432, "mysql": 3306, "mariadb": 3306}
KINDS = ("sqlite", *PORTS)


@dataclass(frozen=True, slots=True)
class JdbcUrl:
    """`database` of SQLite is a file. `parameters` are hidden from what is printed."""

    kind: str
    database: str
    host: str = ""
    port: int = 0
    parameters: dict[str, str] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        if self.kind == "sqlite":
            return f"jdbc:sqlite:{self.database}"
        return f"jdbc:{self.kind}://{self.host}:{self.port}/{self.database}"


def parse_url(text: str) -> JdbcUrl:
    scheme, _, rest = text.partition(":")
    kind = rest.partition(":")[0]
    if scheme != "jdbc" or kind not in KINDS:
        raise ConfigError(f"The URL has to begin with one of {', '.join(f'jdbc:{one}:' for one in KINDS)}")
    if kind == "sqlite":
        database, _, query = rest.removeprefix("sqlite:").partition("?")
        return JdbcUrl(kind, database.removeprefix("file:"), parameters=dict(parse_qsl(query)))
    split = urlsplit(rest)
    host = split.netloc.rpartition("@")[2]
    if "," in host:
        raise ConfigError("A URL with several hosts is not supported")
    try:
        port = split.port or PORTS[kind]
    except ValueError:
        raise ConfigError("The port in the URL is not a number") from None
    parameters = dict(parse_qsl(split.query))
    if split.username:
        parameters.setdefault("user", unquote(split.username))
    if split.password:
        parameters.setdefault("password", unquote(split.password))
    database = unquote(split.path.removeprefix("/")) if split.netloc else unquote(split.path)
    return JdbcUrl(kind, database, split.hostname or "localhost", port, parameters)


def check_url(name: str, value: Any) -> None:
    """A validator. What is wrong is said without the URL."""
    try:
        parse_url(str(value))
    except ConfigError as error:
        raise ConfigError(f"Invalid value for configuration {name}: {error}") from None
