"""Interactive queries: the rows of an application's stores over HTTP, with the offsets that they reflect.

Answers come from copies of the stores on this machine's disk (`millstream.streams.views`), kept current from
the stores' changelog topics, or from the topics of global tables: only what is committed. They need neither
Spark nor the application, and may run anywhere. Every answer names the offsets up to which it is true.

    GET /stores                                        which there are
    GET /stores/{name}/keys/{key}                      the value of a key; 404 if there is none
    GET /stores/{name}/keys?first=..&last=..&limit=..  values in the order of their keys' bytes, both ends
                                                       included
    GET /stores/{name}/windows/{key}?first=..&last=..  windows (by start) or sessions (that touch the span) of
                                                       a key
    GET /stores/{name}/versions/{key}?first=..&last=.. versions of a key that were valid in a span, the newest
                                                       first

Keys of a store are read from the path as its serde wants them: text, numbers, true or false, or JSON. Errors,
/metrics and the checks of browsers are those of the other services (`millstream.http`).
"""

from __future__ import annotations

import asyncio
import json
import struct
import uuid
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request, Response

from millstream.client import ClientConfig
from millstream.http.app import make_app, surrounded
from millstream.http.browser_guard import BrowserPolicy, guarded
from millstream.http.errors import HttpError
from millstream.http.host_names import HostNames
from millstream.http.metrics import ServiceMetrics
from millstream.http.negotiation import ContentNegotiation, MediaTypes
from millstream.http.service_config import LIST, LOGGING_KEYS, TLS_KEYS, ServiceConfig, ServiceConfigKey
from millstream.http.service_main import run_until_signal
from millstream.http.serving import HttpService
from millstream.serdes.plain import to_json
from millstream.streams.task import in_memory
from millstream.streams.topology import Topology
from millstream.streams.views.global_view import GlobalView
from millstream.streams.views.snapshot import Snapshot, ViewRow
from millstream.streams.views.topic_view import TopicView
from millstream.wire.errors import KafkaError

_QUERIED = ("key-value", "window", "session", "versioned")
_MAX_ROWS = 10_000
_MAX_BODY = 1 << 20  # nothing here reads one
JSON = "application/json"
_TYPES = MediaTypes(JSON, frozenset({JSON}), frozenset({JSON}))

router = APIRouter()


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("neither true nor false")
    return text == "true"


_READERS: dict[str, Callable[[str], Any]] = {
    "string": str,
    "bytes": str.encode,
    "uuid": uuid.UUID,
    "long": int,
    "integer": int,
    "short": int,
    "double": float,
    "float": float,
    "boolean": _boolean,
    "json": json.loads,
}


class View:
    """One store: reads on, and then answers."""

    def __init__(self, copy: TopicView, application: str) -> None:
        self._copy, self.spec = copy, copy.spec
        empty = in_memory(copy.spec, application)
        self._encode, self.decode = empty.encode, empty.decode

    def close(self) -> None:
        self._copy.close()

    def query(self, read: Callable[[Snapshot], Any]) -> tuple[Any, dict[str, Any]]:
        """An answer, and what it reflects: the offsets, and why they are not the newest ones, if so."""
        self._copy.catch_up()
        with self._copy.snapshot() as snapshot:
            reflects: dict[str, Any] = {
                "offsets": {str(partition): at for partition, at in snapshot.offsets.items()}
            }
            if self._copy.problem is not None:
                reflects["problem"] = self._copy.problem
            return read(snapshot), reflects

    def key(self, text: str) -> Any:
        """A key as the application knows it."""
        read = _READERS.get(self.spec.key.name)
        if read is None:
            raise ValueError(f"keys of {self.spec.name} ({self.spec.key.name}) cannot be named in a path")
        try:
            found = read(text)
            self._encode(found)
        except (struct.error, OverflowError, TypeError) as error:  # a number that its serde has no room for
            raise ValueError(str(error)) from None
        return found


def views(topology: Topology, application: str, client: ClientConfig, folder: Path) -> dict[str, View]:
    """Of all stores that can be queried: those with a changelog, and global tables. Copies of stores whose
    changelog is a topic of the application's go as far as that does, not as far as it was processed."""
    found: dict[str, View] = {}
    for name, spec in topology.stores.items():
        if spec.type not in _QUERIED:
            continue
        if name in topology.global_stores:
            found[name] = View(GlobalView(topology, spec, application, folder / name, client), application)
        elif spec.restored:
            topic = spec.changelog(application)
            copy = TopicView(spec, topic, folder / name, client, application=application)
            found[name] = View(copy, application)
    return found


def _windows(rows: list[ViewRow]) -> list[Any]:
    return [{"start": row.key.window.start, "end": row.key.window.end, "value": row.value} for row in rows]


def _find(request: Request, name: str, *store_types: str) -> View:
    found: dict[str, View] = request.app.state.views
    if name not in found:
        raise HttpError(404, 404, f"there is no store {name}; there are {', '.join(found) or 'none'}")
    if found[name].spec.type not in store_types:
        raise HttpError(400, 400, f"{name} is a {found[name].spec.type} store")
    return found[name]


def _key_of(view: View, text: str) -> Any:
    try:
        return view.key(text)
    except ValueError as error:
        raise HttpError(400, 400, f"{text!r} is not a key of {view.spec.name}: {error}") from None


def _query(view: View, read: Callable[[Snapshot], Any]) -> tuple[Any, dict[str, Any]]:
    try:
        return view.query(read)
    except KafkaError as error:
        # Nobody has started the application yet, or the cluster is not there.
        raise HttpError(503, 503, f"{view.spec.name} cannot be read now: {error}") from None


def _answer(**content: Any) -> Response:
    return Response(to_json(content), media_type=JSON)


def _render_error(_request: Request, error: HttpError) -> Response:
    return Response(to_json(error.body()), error.status, media_type=JSON)


# Views wait for the cluster and for the disk, so these are plain functions, which FastAPI calls in threads.


@router.get("/stores")
def list_stores(request: Request) -> Response:
    found: dict[str, View] = request.app.state.views
    return _answer(
        stores=[
            {"name": name, "kind": one.spec.type, "key": one.spec.key.name, "value": one.spec.value.name}
            for name, one in found.items()
        ]
    )


@router.get("/stores/{name}/keys/{key:path}")
def get_key(request: Request, name: str, key: str, as_of: int | None = None) -> Response:
    view = _find(request, name, "key-value", "versioned")
    wanted = _key_of(view, key)
    if as_of is not None and view.spec.type != "versioned":
        raise HttpError(400, 400, f"{name} is a {view.spec.type} store: it has no past")
    row, reflects = _query(
        view,
        lambda snapshot: snapshot.get(wanted) if as_of is None else snapshot.get_as_of(wanted, as_of),
    )
    if row is None:
        raise HttpError(404, 404, f"{name} has no key {key}")
    return _answer(key=row.key, value=row.value, timestamp=row.timestamp, **reflects)


@router.get("/stores/{name}/keys")
def get_keys(
    request: Request, name: str, first: str | None = None, last: str | None = None, limit: int = 100
) -> Response:
    view = _find(request, name, "key-value")
    low = None if first is None else _key_of(view, first)
    high = None if last is None else _key_of(view, last)

    def rows(snapshot: Snapshot) -> list[Any]:
        found = islice(snapshot.range(low, high), max(0, min(limit, _MAX_ROWS)))
        return [row._asdict() for row in found]

    content, reflects = _query(view, rows)
    return _answer(rows=content, **reflects)


@router.get("/stores/{name}/versions/{key:path}")
def get_versions(request: Request, name: str, key: str, first: int = 0, last: int = 1 << 60) -> Response:
    view = _find(request, name, "versioned")
    wanted = _key_of(view, key)

    def rows(snapshot: Snapshot) -> list[Any]:
        found = islice(snapshot.versions(wanted, first, last), _MAX_ROWS)
        return [{"value": row.value, "timestamp": row.timestamp, "valid_to": row.valid_to} for row in found]

    content, reflects = _query(view, rows)
    return _answer(key=wanted, versions=content, **reflects)


@router.get("/stores/{name}/windows/{key:path}")
def get_windows(request: Request, name: str, key: str, first: int = 0, last: int = 1 << 60) -> Response:
    view = _find(request, name, "window", "session")
    wanted = _key_of(view, key)
    content, reflects = _query(view, lambda snapshot: _windows(snapshot.windows(wanted, first, last)))
    return _answer(key=wanted, windows=content, **reflects)


def query_service(
    topology: Topology, application: str, client: ClientConfig, folder: Path, hosts: HostNames
) -> HttpService:
    """The HTTP service of an application's stores. Its copies of them lie in `folder`."""
    found = views(topology, application, client, folder)
    app = make_app(f"Stores of {application}", [router], _render_error)
    app.state.views = found
    negotiated = ContentNegotiation(app, lambda _path: _TYPES, max_bytes=_MAX_BODY)

    async def start() -> str:
        return f"application={application} stores={len(found)}"

    def close() -> None:
        for view in found.values():
            view.close()

    async def stop() -> None:
        await asyncio.get_running_loop().run_in_executor(None, close)

    around = surrounded(
        negotiated,
        ServiceMetrics("queries", lambda: []),
        lambda inner: guarded(inner, BrowserPolicy(hosts), JSON),
    )
    return HttpService(around, start, stop)


class _QueriesConfig(ServiceConfig):
    """Nobody writes these in a file: `serve` gives what there is to say."""

    keys = {"listeners": ServiceConfigKey(LIST, None, "Where to listen."), **TLS_KEYS, **LOGGING_KEYS}
    prefixes = ()
    default_port = 7070


def serve(
    topology: Topology,
    application: str,
    client: ClientConfig,
    host: str,
    port: int,
    folder: Path,
    allowed_hosts: Iterable[str] = (),
) -> None:
    """Answers until the process is stopped."""
    address = f"[{host}]" if ":" in host else host
    hosts = HostNames([host], allowed_hosts, setting="allowed_hosts")
    run_until_signal(
        "queries",
        _QueriesConfig({"listeners": f"http://{address}:{port}"}),
        lambda _config, _ports: query_service(topology, application, client, folder, hosts),
    )
