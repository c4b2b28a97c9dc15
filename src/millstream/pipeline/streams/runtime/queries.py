"""Interactive queries: the rows of an application's stores over HTTP, with the offsets that they reflect.

A `View` is a copy of one store, kept current from the store's changelog topic: only what is committed, of all partitions. It needs neither
Spark nor the application, and may run anywhere. Every answer names the offsets of the changelog up to which it is true.

    GET /stores                                        which there are
    GET /stores/{name}/keys/{key}                      the value of a key; 404 if there is none
    GET /stores/{name}/keys?first=..&last=..&limit=..  values in the order of their keys' bytes, both ends included
    GET /stores/{name}/windows/{key}?first=..&last=..  windows (by start) or sessions (that touch the span) of a key

Keys of a store are read from the path as its serde wants them: text, numbers, or JSON.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from millstream.client import EARLIEST, LATEST, ClientConfig, Cluster, list_offsets
from millstream.client.producer import Place
from millstream.pipeline.streams.errors import StreamsError
from millstream.pipeline.streams.runtime.worker import read_ranges
from millstream.pipeline.streams.stores import StoreSpec
from millstream.pipeline.streams.task import in_memory
from millstream.pipeline.streams.topology import Topology
from millstream.serdes.plain import to_json

if TYPE_CHECKING:
    from fastapi import FastAPI

_QUERIED = ("key-value", "window", "session")
_MOST = 10_000
_READERS: dict[str, Callable[[str], Any]] = {
    "string": str,
    "bytes": str.encode,
    "uuid": str,
    "long": int,
    "integer": int,
    "short": int,
    "double": float,
    "float": float,
    "json": json.loads,
}


class View:
    """A copy of one store. `catch_up` reads on; the rest answers from memory."""

    def __init__(self, spec: StoreSpec, application: str, client: ClientConfig) -> None:
        self.spec = spec
        self._topic = spec.changelog(application)
        self._cluster = Cluster(client)
        self.store = in_memory(spec, application)
        self._positions: dict[Place, int] = {}
        self._lock = threading.Lock()

    @property
    def offsets(self) -> dict[str, int]:
        return {str(number): offset for (_, number), offset in sorted(self._positions.items())}

    def ask(self, question: Callable[[Any], Any]) -> tuple[Any, dict[str, int]]:
        """An answer, and the offsets that it reflects."""
        with self._lock:
            self._catch_up()
            return question(self.store), self.offsets

    def key(self, text: str) -> bytes:
        """A key as the store has it."""
        read = _READERS.get(self.spec.key.name)
        if read is None:
            raise ValueError(f"keys of {self.spec.name} ({self.spec.key.name}) cannot be named in a path")
        found: bytes = self.store.encode(read(text))
        return found

    def _catch_up(self) -> None:
        places = [(self._topic, number) for number in self._cluster.topic(self._topic).partitions]
        new = [place for place in places if place not in self._positions]
        if new:
            earliest = list_offsets(self._cluster, dict.fromkeys(new, EARLIEST))
            self._positions.update({place: found.offset for place, found in earliest.items()})
        latest = list_offsets(self._cluster, dict.fromkeys(places, LATEST), read_committed=True)
        until = {place: found.offset for place, found in latest.items()}
        for _, reads in read_ranges(self._cluster, self._positions, until):
            self.store.restore((key or b"", value, at) for _, key, value, at, _ in reads)
        self._positions.update(until)


def views(topology: Topology, application: str, client: ClientConfig) -> dict[str, View]:
    """Of all stores that have a changelog and can be asked."""
    return {
        name: View(spec, application, client)
        for name, spec in topology.stores.items()
        if spec.logged and spec.kind in _QUERIED
    }


def query_app(topology: Topology, application: str, client: ClientConfig) -> FastAPI:
    """The HTTP application."""
    from fastapi import FastAPI, HTTPException, Response

    found = views(topology, application, client)
    app = FastAPI(title=f"Stores of {application}", version="1")

    def view(name: str, *kinds: str) -> View:
        if name not in found:
            raise HTTPException(404, f"there is no store {name}; there are {', '.join(found) or 'none'}")
        if found[name].spec.kind not in kinds:
            raise HTTPException(400, f"{name} is a {found[name].spec.kind} store")
        return found[name]

    def place(of: View, text: str) -> bytes:
        try:
            return of.key(text)
        except ValueError as error:
            raise HTTPException(400, f"{text!r} is not a key of {of.spec.name}: {error}") from None

    def answer(**content: Any) -> Response:
        return Response(to_json(content), media_type="application/json")

    @app.get("/stores")
    def stores() -> Response:
        return answer(
            stores=[
                {"name": name, "kind": one.spec.kind, "key": one.spec.key.name, "value": one.spec.value.name}
                for name, one in found.items()
            ]
        )

    @app.get("/stores/{name}/keys/{key:path}")
    def one_key(name: str, key: str) -> Response:
        of = view(name, "key-value")
        wanted = place(of, key)
        row, offsets = of.ask(lambda store: store.get(wanted))
        if row is None:
            raise HTTPException(404, f"{name} has no key {key}")
        return answer(key=of.store.decode(wanted), value=row[0], timestamp=row[1], offsets=offsets)

    @app.get("/stores/{name}/keys")
    def several_keys(
        name: str, first: str | None = None, last: str | None = None, limit: int = 100
    ) -> Response:
        of = view(name, "key-value")
        low = None if first is None else place(of, first)
        high = None if last is None else place(of, last)

        def rows(store: Any) -> list[Any]:
            chosen: list[Any] = []
            for key, value, timestamp in store.range(low, high):
                if len(chosen) >= min(limit, _MOST):
                    break
                chosen.append({"key": store.decode(key), "value": value, "timestamp": timestamp})
            return chosen

        content, offsets = of.ask(rows)
        return answer(rows=content, offsets=offsets)

    @app.get("/stores/{name}/windows/{key:path}")
    def windows(name: str, key: str, first: int = 0, last: int = 1 << 60) -> Response:
        of = view(name, "window", "session")
        wanted = place(of, key)

        def rows(store: Any) -> list[Any]:
            if of.spec.kind == "session":
                found = store.find(wanted, first, last)
                return [{"start": start, "end": end, "value": value} for start, end, value in found]
            size = of.spec.window_size
            found = store.fetch(wanted, first, last)
            return [{"start": start, "end": start + size, "value": row[0]} for start, row in found]

        content, offsets = of.ask(rows)
        return answer(key=of.store.decode(wanted), windows=content, offsets=offsets)

    return app


def serve(topology: Topology, application: str, client: ClientConfig, host: str, port: int) -> None:
    """Answers until the process is stopped."""
    try:
        import uvicorn
    except ImportError:
        raise StreamsError("interactive queries need millstream[services]") from None
    uvicorn.run(query_app(topology, application, client), host=host, port=port, log_level="warning")
