"""The settings of the HTTP sinks, Aiven's and Confluent's, and the client that they describe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from millstream.connect.config.config_def import (
    REQUIRED,
    CaseInsensitiveValidString,
    CheckedBy,
    ConfigDef,
    ConfigError,
    ConfigKey,
    Range,
    ValidString,
)
from millstream.connect.connectors.http.client import (
    Authorization,
    HttpClient,
    OAuth2,
    Retries,
    Static,
    basic,
)
from millstream.settings.config_key import Importance
from millstream.settings.values import Type

HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW


def is_url(name: str, value: Any) -> None:
    if value is not None and (urlsplit(value).scheme not in ("http", "https") or not urlsplit(value).netloc):
        raise ConfigError.of(name, value, "malformed URL")


URL = CheckedBy(is_url, "a URL of http or https")

_RETRIES = ConfigKey("retry.backoff.ms", Type.INT, 3000, MEDIUM, "The first pause; it doubles.", Range(0))

AIVEN = ConfigDef(
    [
        ConfigKey("http.url", Type.STRING, REQUIRED, HIGH, "Where records are sent to.", URL),
        ConfigKey(
            "http.authorization.type",
            Type.STRING,
            "none",
            HIGH,
            "Who we are: none, static (a header) or oauth2.",
            ValidString(("none", "static", "oauth2")),
        ),
        ConfigKey("http.headers.authorization", Type.PASSWORD, None, MEDIUM, "The header of `static`."),
        ConfigKey("http.headers.content.type", Type.STRING, None, LOW, "Content-Type of requests."),
        ConfigKey("http.headers.additional", Type.LIST, (), LOW, "More headers: name:value, ..."),
        ConfigKey("oauth2.access.token.url", Type.STRING, None, HIGH, "Where a token is taken.", URL),
        ConfigKey("oauth2.client.id", Type.STRING, None, HIGH, "Of oauth2."),
        ConfigKey("oauth2.client.secret", Type.PASSWORD, None, HIGH, "Of oauth2."),
        ConfigKey(
            "oauth2.client.authorization.mode",
            Type.STRING,
            "header",
            MEDIUM,
            "Where id and secret stand: in a header, or in the form (url).",
            CaseInsensitiveValidString(("HEADER", "URL")),
        ),
        ConfigKey("oauth2.client.scope", Type.STRING, None, LOW, "The scope that is asked for."),
        ConfigKey("oauth2.response.token.property", Type.STRING, "access_token", LOW, "Where the token is."),
        ConfigKey("batching.enabled", Type.BOOLEAN, False, HIGH, "Several records in a request."),
        ConfigKey("batch.max.size", Type.INT, 500, MEDIUM, "How many at most.", Range(1, 1_000_000)),
        ConfigKey("batch.prefix", Type.STRING, "", LOW, "What stands before the records of a batch."),
        ConfigKey("batch.suffix", Type.STRING, "", LOW, "What stands behind them."),
        ConfigKey("batch.separator", Type.STRING, "\n", LOW, "What stands between them."),
        ConfigKey(
            "max.retries", Type.INT, 1, MEDIUM, "How often a request is repeated; -1: for ever.", Range(-1)
        ),
        _RETRIES,
        ConfigKey("http.timeout", Type.INT, 30, LOW, "Seconds until a request has failed.", Range(1)),
        ConfigKey("http.ssl.trust.all.certs", Type.BOOLEAN, False, LOW, "Whether any certificate is taken."),
    ]
)

CONFLUENT = ConfigDef(
    [
        ConfigKey(
            "http.api.url",
            Type.STRING,
            REQUIRED,
            HIGH,
            "Where records are sent to; ${topic} and ${key} may stand in it.",
            URL,
        ),
        ConfigKey(
            "request.method",
            Type.STRING,
            "POST",
            HIGH,
            "POST, PUT or PATCH.",
            CaseInsensitiveValidString(("POST", "PUT", "PATCH")),
        ),
        ConfigKey("headers", Type.STRING, "", HIGH, "Headers: name:value|name:value."),
        ConfigKey("header.separator", Type.STRING, "|", LOW, "What stands between headers."),
        ConfigKey(
            "auth.type",
            Type.STRING,
            "NONE",
            HIGH,
            "Who we are.",
            CaseInsensitiveValidString(("NONE", "BASIC", "OAUTH2")),
        ),
        ConfigKey("connection.user", Type.STRING, "", MEDIUM, "Of BASIC."),
        ConfigKey("connection.password", Type.PASSWORD, None, MEDIUM, "Of BASIC."),
        ConfigKey("oauth2.token.url", Type.STRING, None, HIGH, "Where a token is taken.", URL),
        ConfigKey("oauth2.client.id", Type.STRING, None, HIGH, "Of OAUTH2."),
        ConfigKey("oauth2.client.secret", Type.PASSWORD, None, HIGH, "Of OAUTH2."),
        ConfigKey("oauth2.client.scope", Type.STRING, None, LOW, "The scope that is asked for."),
        ConfigKey("oauth2.token.property", Type.STRING, "access_token", LOW, "Where the token is."),
        ConfigKey("batch.max.size", Type.INT, 1, HIGH, "How many records are in a request.", Range(1)),
        ConfigKey("batch.prefix", Type.STRING, "", HIGH, "What stands before the records of a batch."),
        ConfigKey("batch.suffix", Type.STRING, "", HIGH, "What stands behind them."),
        ConfigKey("batch.separator", Type.STRING, ",", HIGH, "What stands between them."),
        ConfigKey(
            "behavior.on.null.values",
            Type.STRING,
            "ignore",
            LOW,
            "What becomes of a record without a value; delete: a DELETE to its URL.",
            ValidString(("ignore", "delete", "fail")),
        ),
        ConfigKey(
            "behavior.on.error",
            Type.STRING,
            "fail",
            LOW,
            "What becomes of a record that the server refuses: fail (a dead letter where errors are "
            "tolerated), or ignore or log (it is left out).",
            ValidString(("fail", "ignore", "log")),
        ),
        ConfigKey(
            "max.retries", Type.INT, 10, MEDIUM, "How often a request is repeated; -1: for ever.", Range(-1)
        ),
        _RETRIES,
        ConfigKey(
            "http.connect.timeout.ms", Type.INT, 30_000, LOW, "Until a connection has failed.", Range(1)
        ),
        ConfigKey("http.request.timeout.ms", Type.INT, 30_000, LOW, "Until a request has failed.", Range(1)),
    ]
)


def _headers(entries: Any, name: str) -> dict[str, str]:
    found = {}
    for entry in entries:
        key, colon, value = entry.partition(":")
        if not colon or not key.strip():
            raise ConfigError.of(name, entry, "a header is name:value")
        found[key.strip()] = value.strip()
    return found


def _secret(parsed: Mapping[str, Any], name: str) -> str:
    if parsed[name] is None:
        raise ConfigError(f'Missing required configuration "{name}" which has no default value.')
    value: str = parsed[name].value
    return value


def _oauth2(parsed: Mapping[str, Any], client: HttpClient, url: str, token: str, in_header: bool) -> OAuth2:
    for name in (url, "oauth2.client.id"):
        if not parsed[name]:
            raise ConfigError(f'Missing required configuration "{name}" which has no default value.')
    return OAuth2(
        parsed[url],
        parsed["oauth2.client.id"],
        _secret(parsed, "oauth2.client.secret"),
        scope=parsed["oauth2.client.scope"],
        token_property=parsed[token],
        in_header=in_header,
        post=client.http.post,
    )


def aiven_client(parsed: Mapping[str, Any]) -> HttpClient:
    client = HttpClient(
        headers=_headers(parsed["http.headers.additional"], "http.headers.additional"),
        retries=Retries(parsed["max.retries"], parsed["retry.backoff.ms"]),
        timeout=parsed["http.timeout"],
        verify=not parsed["http.ssl.trust.all.certs"],
    )
    kind = parsed["http.authorization.type"]
    if kind == "static":
        client.authorization = Static(_secret(parsed, "http.headers.authorization"))
    elif kind == "oauth2":
        in_header = parsed["oauth2.client.authorization.mode"].lower() == "header"
        client.authorization = _oauth2(
            parsed, client, "oauth2.access.token.url", "oauth2.response.token.property", in_header
        )
    return client


def confluent_client(parsed: Mapping[str, Any]) -> HttpClient:
    entries = [entry for entry in parsed["headers"].split(parsed["header.separator"]) if entry.strip()]
    client = HttpClient(
        headers=_headers(entries, "headers"),
        retries=Retries(parsed["max.retries"], parsed["retry.backoff.ms"]),
        timeout=parsed["http.request.timeout.ms"] / 1000,
        connect_timeout=parsed["http.connect.timeout.ms"] / 1000,
    )
    made: Authorization = Authorization()
    if parsed["auth.type"].upper() == "BASIC":
        made = basic(parsed["connection.user"], _secret(parsed, "connection.password"))
    elif parsed["auth.type"].upper() == "OAUTH2":
        made = _oauth2(parsed, client, "oauth2.token.url", "oauth2.token.property", True)
    client.authorization = made
    return client
