"""Connectors from SQL: statements become requests to a Connect worker's REST API (`ksql.connect.url`).

Nothing of it is kept here: the worker has the connectors, whoever made them. Any Connect worker will do,
Kafka's or ours. A worker that wants a login gets the one of the credentials file, or else, as in ksqlDB, that
of the caller of the statement: then who may not change connectors there cannot do it from here either.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx

from millstream.sql import ast, statements
from millstream.sql.errors import SqlError
from millstream.sql.server.entities import Json, entity
from millstream.sql.server.peers import authorization

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.sql.catalog import Catalog, Source
    from millstream.sql.server.sql_config import SqlConfig

_SECONDS = 30.0


class Refused(Exception):
    """The worker's own answer: status and message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Connectors:
    """`describe` gives the description of a stream or table, as DESCRIBE has it."""

    def __init__(self, config: SqlConfig, describe: Callable[[Source], Json]) -> None:
        self._url = config.value("ksql.connect.url").rstrip("/")
        self._describe = describe
        authority = config.value("ksql.connect.ssl.truststore.location")
        trusted = ssl.create_default_context(cafile=authority) if authority else True
        own = _credentials(config)
        self._has_own_login = own is not None
        self._http = httpx.Client(base_url=self._url, timeout=_SECONDS, auth=own, verify=trusted)

    def execute(self, statement: statements.Statement, catalog: Catalog) -> Json | None:
        match statement:
            case statements.CreateConnector():
                return self._create(statement)
            case statements.DropConnector():
                return self._drop(statement)
            case statements.Describe(what="CONNECTOR"):
                return self._description(statement, catalog)
            case statements.Show(what="CONNECTORS"):
                return self._list(statement)
            case statements.Show(what="CONNECTOR PLUGINS"):
                plugins = [
                    {
                        "className": one["class"],
                        "type": str(one["type"]).upper(),
                        "version": one.get("version", ""),
                    }
                    for one in self._asked("list connector plugins", "GET", "/connector-plugins")
                ]
                return entity("connector_plugins_list", statement.text, connectorsPlugins=plugins)
        return None

    def _create(self, statement: statements.CreateConnector) -> Json:
        config = {name: _text(value) for name, value in statement.properties.items()}
        body = {"name": statement.name, "config": config}
        try:
            info = self._request("POST", "/connectors", body)
        except Refused as error:
            if error.status == 409 and statement.if_not_exists and self._exists(statement.name):
                message = f"Connector {statement.name} already exists"
                return entity("warning_entity", statement.text, message=message)
            raise SqlError(f"Failed to create connector: {error}", statement.location) from None
        return entity("connector_info", statement.text, info=info)

    def _exists(self, name: str) -> bool:
        return name in self._asked("list connectors", "GET", "/connectors")

    def _drop(self, statement: statements.DropConnector) -> Json:
        try:
            self._request("DELETE", _path(statement.name))
        except Refused as error:
            if error.status == 404 and statement.if_exists:
                message = f"Connector '{statement.name}' does not exist."
                return entity("warning_entity", statement.text, message=message)
            raise SqlError(f"Failed to drop connector: {error}", statement.location) from None
        return entity("drop_connector", statement.text, connectorName=statement.name)

    def _list(self, statement: statements.Show) -> Json:
        found = self._asked("list connectors", "GET", "/connectors?expand=status&expand=info")
        connectors = []
        for name, one in sorted(found.items()):
            kind = str(one["info"].get("type") or "unknown").upper()
            if statement.which is not None and kind != statement.which:
                continue
            connectors.append(
                {
                    "name": name,
                    "type": kind,
                    "className": one["info"]["config"].get("connector.class", ""),
                    "state": _state(one["status"]),
                }
            )
        return entity("connector_list", statement.text, connectors=connectors)

    def _description(self, statement: statements.Describe, catalog: Catalog) -> Json:
        name = statement.name or ""
        info = self._asked("describe connector", "GET", _path(name))
        status = self._asked("describe connector", "GET", _path(name) + "/status")
        topics = self._topics(name, info)
        sources = [
            self._describe(source)
            for _, source in sorted(catalog.sources.items())
            if source.topic in topics and str(info.get("type")).lower() == "source"
        ]
        return entity(
            "connector_description",
            statement.text,
            connectorClass=info["config"].get("connector.class", ""),
            status=status,
            sources=sources,
            topics=topics,
        )

    def _topics(self, name: str, info: Json) -> list[str]:
        """Those that it has used; a worker that does not note them is asked what the connector was told."""
        try:
            found = self._request("GET", _path(name) + "/topics")
            return sorted(found[name]["topics"])
        except (Refused, KeyError, TypeError):
            given = info["config"].get("topics") or info["config"].get("topic") or ""
            return sorted(filter(None, (one.strip() for one in given.split(","))))

    # Requests

    def _asked(self, what: str, method: str, path: str) -> Any:
        try:
            return self._request(method, path)
        except Refused as error:
            raise SqlError(f"Failed to {what}: {error}") from None

    def _request(self, method: str, path: str, body: Json | None = None) -> Any:
        caller = None if self._has_own_login else authorization.get()
        headers = {} if caller is None else {"Authorization": caller}
        try:
            answer = self._http.request(method, path, json=body, headers=headers)
        except httpx.HTTPError as error:
            raise SqlError(
                f"The Connect worker at {self._url} (ksql.connect.url) does not answer: {error}"
            ) from None
        try:
            found = answer.json() if answer.content else None
        except ValueError:
            found = {"message": answer.text[:300]}
        if answer.status_code >= 400:
            message = found.get("message") if isinstance(found, dict) else None
            raise Refused(answer.status_code, message or f"HTTP {answer.status_code}")
        return found


def _path(name: str) -> str:
    return f"/connectors/{quote(name, safe='')}"


def _text(value: ast.Expression) -> str:
    """Settings of connectors are text."""
    found = value.value if isinstance(value, ast.Literal) else None
    if isinstance(found, bool):
        return str(found).lower()
    return "" if found is None else str(found)


def _state(status: Json) -> str:
    """RUNNING (1/2 tasks RUNNING), as ksqlDB sums it up."""
    tasks = status.get("tasks", [])
    running = sum(one["state"] == "RUNNING" for one in tasks)
    own = status["connector"]["state"]
    if own != "RUNNING":
        return str(own)
    shown = "RUNNING" if running == len(tasks) and tasks else "FAILED" if running == 0 else "WARNING"
    return f"{shown} ({running}/{len(tasks)} tasks RUNNING)"


def _credentials(config: SqlConfig) -> tuple[str, str] | None:
    """`username=` and `password=` in the file of `ksql.connect.basic.auth.credentials.file`."""
    if config.value("ksql.connect.basic.auth.credentials.source").upper() != "FILE":
        return None
    path = Path(config.value("ksql.connect.basic.auth.credentials.file"))
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise SqlError(f"ksql.connect.basic.auth.credentials.file: {path}: {error.strerror}") from None
    found = dict(line.split("=", 1) for line in lines if "=" in line)
    return found.get("username", "").strip(), found.get("password", "").strip()
