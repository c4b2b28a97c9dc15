"""What a server asks the other servers of its service: how the queries are that they run.

As in ksqlDB, the question is a statement with the caller's own credentials, marked so that the other does not
pass it on again. A server that does not answer is UNRESPONSIVE, and so are its queries.
"""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from contextvars import ContextVar
from typing import Any

import httpx

from millstream.sql.server.entities import Json
from millstream.sql.server.sql_config import SqlConfig

log = logging.getLogger("millstream.sql")

INTERNAL = "request.ksql.internal.request"
"""ksqlDB's mark of a request between servers."""
UNRESPONSIVE = "UNRESPONSIVE"
_TIMEOUT = httpx.Timeout(5.0, connect=1.0)

authorization: ContextVar[str | None] = ContextVar("authorization", default=None)
"""Of the request that is served now."""


def url_of_server(config: SqlConfig, port: int) -> str:
    """Under which other servers reach this one."""
    listener = config.listeners[0]
    advertised: str = config.value("ksql.advertised.listener")
    if advertised:
        return advertised if "://" in advertised else f"{listener.scheme}://{advertised}"
    host = listener.host if listener.host not in ("0.0.0.0", "::") else socket.gethostname()  # noqa: S104
    return f"{listener.scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def server_id(url: str) -> str:
    """Loopback addresses are the same on every machine."""
    return f"{socket.gethostname()} {url}"


def url_of(server: str) -> str:
    return server.rpartition(" ")[2]


class Peers:
    def __init__(self, config: SqlConfig) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._http: httpx.Client | None = None

    def close(self) -> None:
        if self._http is not None:
            self._http.close()

    def states(self, server: str) -> dict[str, str]:
        """The states of the queries, as that server knows them; nothing if it does not answer."""
        found = self.ask(server, "SHOW QUERIES;")
        return {} if found is None else {one["id"]: one["state"] for one in found.get("queries", ())}

    def ask(self, server: str, statement: str) -> Json | None:
        """The entity of one statement, or None without an answer."""
        caller = authorization.get()
        headers = {} if caller is None else {"Authorization": caller}
        body = {"ksql": statement, "streamsProperties": {INTERNAL: True}}
        try:
            got = self._client().post(f"{url_of(server)}/ksql", json=body, headers=headers)
            got.raise_for_status()
            found: Any = got.json()
            return dict(found[0])
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, LookupError, TypeError) as error:
            log.warning("the server %s does not answer: %s", url_of(server), error or type(error).__name__)
            return None

    def _client(self) -> httpx.Client:
        with self._lock:
            if self._http is None:
                secure = any(listener.scheme == "https" for listener in self._config.listeners)
                self._http = httpx.Client(
                    timeout=_TIMEOUT, verify=_tls_context(self._config) if secure else True
                )
            return self._http


def _tls_context(config: SqlConfig) -> ssl.SSLContext:
    """Servers trust each other by the authorities that they trust in clients, or those of the system."""
    context = ssl.create_default_context()
    truststore = config.value("ssl.truststore.location")
    if truststore:
        context.load_verify_locations(truststore)
    return context
