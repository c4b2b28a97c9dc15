"""Interactive queries: the rows of an application's stores over HTTP, with the offsets that they reflect.

A `View` is a copy of one store, kept current from the store's changelog topic: only what is committed, of all
partitions, each by itself as the application's tasks have them, because each has a time of its own. That of a
global table follows the table's topic. A view needs neither Spark nor the application, and may run anywhere.
Every answer names the offsets up to which it is true.

    GET /stores                                        which there are
    GET /stores/{name}/keys/{key}                      the value of a key; 404 if there is none
    GET /stores/{name}/keys?first=..&last=..&limit=..  values in the order of their keys' bytes, both ends
    included GET /stores/{name}/windows/{key}?first=..&last=..  windows (by start) or sessions (that touch the
    span) of a key

Keys of a store are read from the path as its serde wants them: text, numbers, true or false, or JSON.
"""

from __future__ import annotations

import json
import struct
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from millstream.client import ClientConfig, Cluster
from millstream.serdes.plain import to_json
from millstream.streams.errors import StreamsError
from millstream.streams.runtime.global_tables import global_table_task
from millstream.streams.runtime.topic_reader import TopicReader
from millstream.streams.stores import StoreSpec
from millstream.streams.task import Errors, in_memory
from millstream.streams.topology import Topology
from millstream.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from fastapi import FastAPI

    from millstream.streams.columns.blocks import Records

_QUERIED = ("key-value", "window", "session")
_MAX_ROWS = 10_000


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
    """A copy of one store. `ask` reads on and then answers from memory."""

    def __init__(self, spec: StoreSpec, application: str, client: ClientConfig, topic: str) -> None:
        self.spec, self._application, self._topic = spec, application, topic
        self._cluster = Cluster(client)
        empty = in_memory(spec, application)
        self._encode, self.decode = empty.encode, empty.decode
        self._lock = threading.Lock()
        self._reader = TopicReader(self._cluster, [topic])
        self._begin()

    def close(self) -> None:
        self._cluster.close()

    def _begin(self) -> None:
        """Forgets everything."""
        self._reader.positions.clear()
        self._stores: dict[int, Any] = {}

    def _take(self, partition: int, reads: Records) -> None:
        store = self._stores.get(partition)
        if store is None:
            store = self._stores[partition] = in_memory(self.spec, self._application)
        store.restore((key or b"", value, at) for _, key, value, at, _ in reads)

    def query(self, read: Callable[[list[Any]], Any]) -> tuple[Any, dict[str, int]]:
        """An answer from the stores of all partitions, and the offsets that it reflects."""
        with self._lock:
            self._catch_up()
            offsets = {str(number): offset for (_, number), offset in sorted(self._reader.positions.items())}
            return read(list(self._stores.values())), offsets

    def key(self, text: str) -> bytes:
        """A key as the store has it."""
        read = _READERS.get(self.spec.key.name)
        if read is None:
            raise ValueError(f"keys of {self.spec.name} ({self.spec.key.name}) cannot be named in a path")
        try:
            found: bytes = self._encode(read(text))
        except (struct.error, OverflowError, TypeError) as error:  # a number that its serde has no room for
            raise ValueError(str(error)) from None
        return found

    def _catch_up(self) -> None:
        problem = self._cluster.refresh([self._topic]).get(self._topic)
        if problem is not None:
            if problem.code is ErrorCode.unknown_topic_or_partition:
                self._begin()
            raise problem
        ends = self._reader.ends()
        if self._reader.are_others(ends):  # the application was reset
            self._begin()
        try:
            for (_, number), records in self._reader.read_to(ends):
                self._take(number, records)
        except KafkaError:
            self._begin()  # some of it was taken
            raise


class GlobalView(View):
    """A copy of a global table: its topic as the application's own processor takes it, one store for all
    partitions."""

    def __init__(self, topology: Topology, spec: StoreSpec, application: str, client: ClientConfig) -> None:
        self._topology = topology
        super().__init__(spec, application, client, topology.global_stores[spec.name])

    def _begin(self) -> None:
        super()._begin()
        name = self.spec.name
        holders = [one.id for one in self._topology.sub_topologies() if name in one.stores]
        errors = Errors(reading="continue", processing="continue")
        self._task = global_table_task(self._topology, self._application, holders, errors)
        self._stores = {0: self._task.stores[name]}

    def _take(self, partition: int, reads: Records) -> None:
        self._task.deliver_batch(self._topic, partition, reads)


def views(topology: Topology, application: str, client: ClientConfig) -> dict[str, View]:
    """Of all stores that can be queried: those with a changelog, and global tables."""
    found: dict[str, View] = {}
    for name, spec in topology.stores.items():
        if spec.type in _QUERIED and name in topology.global_stores:
            found[name] = GlobalView(topology, spec, application, client)
        elif spec.type in _QUERIED and spec.logged:
            found[name] = View(spec, application, client, spec.changelog(application))
    return found


def _row(stores: list[Any], key: bytes) -> Any:
    """It is in one partition at most; which one, its producer has chosen."""
    rows = (store.get(key) for store in stores)
    return next((row for row in rows if row is not None), None)


def _rows(stores: list[Any], first: bytes | None, last: bytes | None) -> Iterator[tuple[bytes, Any, int]]:
    return merge(*(store.range(first, last) for store in stores), key=itemgetter(0))


def _windows(stores: list[Any], spec: StoreSpec, key: bytes, first: int, last: int) -> list[Any]:
    if spec.type == "session":
        found = [row for store in stores for row in store.find(key, first, last)]
    else:
        rows = (row for store in stores for row in store.fetch(key, first, last))
        found = [(start, start + spec.window_size, row[0]) for start, row in rows]
    found.sort(key=lambda row: (row[1], row[0]))
    return [{"start": start, "end": end, "value": value} for start, end, value in found]


def _key_of(view: View, text: str) -> bytes:
    from fastapi import HTTPException

    try:
        return view.key(text)
    except ValueError as error:
        raise HTTPException(400, f"{text!r} is not a key of {view.spec.name}: {error}") from None


def _query(view: View, read: Callable[[list[Any]], Any]) -> tuple[Any, dict[str, int]]:
    from fastapi import HTTPException

    try:
        return view.query(read)
    except KafkaError as error:
        # Nobody has started the application yet, or the cluster is not there.
        raise HTTPException(503, f"{view.spec.name} cannot be read now: {error}") from None


def query_app(topology: Topology, application: str, client: ClientConfig) -> FastAPI:
    """The HTTP application."""
    from fastapi import FastAPI, HTTPException, Response

    found = views(topology, application, client)
    app = FastAPI(title=f"Stores of {application}", version="1")

    def view(name: str, *store_types: str) -> View:
        if name not in found:
            raise HTTPException(404, f"there is no store {name}; there are {', '.join(found) or 'none'}")
        if found[name].spec.type not in store_types:
            raise HTTPException(400, f"{name} is a {found[name].spec.type} store")
        return found[name]

    def answer(**content: Any) -> Response:
        return Response(to_json(content), media_type="application/json")

    @app.get("/stores")
    def stores() -> Response:
        return answer(
            stores=[
                {"name": name, "kind": one.spec.type, "key": one.spec.key.name, "value": one.spec.value.name}
                for name, one in found.items()
            ]
        )

    @app.get("/stores/{name}/keys/{key:path}")
    def one_key(name: str, key: str) -> Response:
        of = view(name, "key-value")
        wanted = _key_of(of, key)
        row, offsets = _query(of, lambda stores: _row(stores, wanted))
        if row is None:
            raise HTTPException(404, f"{name} has no key {key}")
        return answer(key=of.decode(wanted), value=row[0], timestamp=row[1], offsets=offsets)

    @app.get("/stores/{name}/keys")
    def several_keys(
        name: str, first: str | None = None, last: str | None = None, limit: int = 100
    ) -> Response:
        of = view(name, "key-value")
        low = None if first is None else _key_of(of, first)
        high = None if last is None else _key_of(of, last)

        def rows(stores: list[Any]) -> list[Any]:
            return [
                {"key": of.decode(key), "value": value, "timestamp": timestamp}
                for key, value, timestamp in islice(_rows(stores, low, high), max(0, min(limit, _MAX_ROWS)))
            ]

        content, offsets = _query(of, rows)
        return answer(rows=content, offsets=offsets)

    @app.get("/stores/{name}/windows/{key:path}")
    def windows(name: str, key: str, first: int = 0, last: int = 1 << 60) -> Response:
        of = view(name, "window", "session")
        wanted = _key_of(of, key)

        content, offsets = _query(of, lambda stores: _windows(stores, of.spec, wanted, first, last))
        return answer(key=of.decode(wanted), windows=content, offsets=offsets)

    return app


def serve(
    topology: Topology,
    application: str,
    client: ClientConfig,
    host: str,
    port: int,
    allowed_hosts: Iterable[str] = (),
) -> None:
    """Answers until the process is stopped."""
    try:
        import uvicorn
    except ImportError:
        raise StreamsError("interactive queries need millstream[services]") from None
    from millstream.http.browser_guard import BrowserPolicy, guarded
    from millstream.http.host_names import HostNames

    hosts = HostNames([host], allowed_hosts, setting="allowed_hosts")
    app = guarded(query_app(topology, application, client), BrowserPolicy(hosts), "application/json")
    uvicorn.run(app, host=host, port=port, log_level="warning")
