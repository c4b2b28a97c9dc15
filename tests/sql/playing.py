"""Statements played in the topology test driver: JSON records in, JSON records out."""

from __future__ import annotations

import json
from typing import Any

from millstream.sql.catalog import Catalog, Source
from millstream.sql.engine import apply
from millstream.sql.environment import Environment
from millstream.sql.functions import FUNCTIONS
from millstream.sql.parser import parse_each
from millstream.streams.task import Errors
from millstream.testing.topology import TopologyTestDriver


class Played:
    """One driver per query; what a query writes goes to those that read its topic.

    Keys are KAFKA or JSON, values JSON. `log` has what went to the processing log.
    """

    def __init__(self, script: str, **settings: Any) -> None:
        self.log: list[tuple[str, str, str]] = []
        self.environment = Environment(FUNCTIONS, settings=settings)
        self.catalog = Catalog()
        self.drivers: list[tuple[set[str], str, TopologyTestDriver]] = []
        for number, statement in enumerate(parse_each(script, {})):
            outcome = apply(statement, self.catalog, self.environment, number=number, log=self._log)
            self.catalog = outcome.catalog
            if outcome.query is not None:
                driver = TopologyTestDriver(
                    outcome.query.topology(), start=0, errors=Errors(reading="continue")
                )
                topics = {source.topic for source in outcome.query.sources}
                self.drivers.append((topics, outcome.query.sink.topic, driver))
        self.written: dict[str, list[tuple[Any, Any, int]]] = {}

    def _log(self, what: str, text: str, error: Exception, _row: Any) -> None:
        self.log.append((what, text, str(error)))

    def source(self, name: str) -> Source:
        found = self.catalog.source(name)
        assert found is not None
        return found

    def pipe(
        self,
        topic: str,
        key: Any,
        value: Any,
        timestamp: int = 0,
        headers: tuple[tuple[str, bytes], ...] = (),
    ) -> None:
        """A key of bytes goes in as it is; text is text, an int eight bytes, all else JSON."""
        if isinstance(key, str):
            key = key.encode()
        elif isinstance(key, int):
            key = key.to_bytes(8, "big", signed=True)
        elif key is not None and not isinstance(key, bytes):
            key = json.dumps(key).encode()
        raw = None if value is None else value if isinstance(value, bytes) else json.dumps(value).encode()
        self._deliver(topic, key, raw, timestamp, headers)

    def _deliver(
        self, topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Any
    ) -> None:
        for topics, sink, driver in self.drivers:
            if topic not in topics:
                continue
            driver.pipe_raw(topic, key, value, timestamp, headers)
            for record in driver.read_raw(sink):
                self.written.setdefault(sink, []).append((record.key, record.value, record.timestamp))
                self._deliver(sink, record.key, record.value, record.timestamp, record.headers)

    def take(self, topic: str) -> list[tuple[Any, Any, int]]:
        """(key as bytes, value as JSON, timestamp) of all that was written since the last time."""
        found = self.written.pop(topic, [])
        return [(key, None if value is None else json.loads(value), time) for key, value, time in found]

    def values(self, topic: str) -> list[Any]:
        return [value for _, value, _ in self.take(topic)]
