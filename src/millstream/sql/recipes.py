"""How a query's topology travels: as the statement and the catalog it was accepted with, not as code.

Generated functions cannot be sent to another process; what they were generated from can. A topology that was
made from a recipe is pickled as that recipe, and made again where it arrives: in the driver, and in every
lane that runs a task of it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from millstream.client import ClientConfig
from millstream.serdes.client import SchemaRegistry
from millstream.sql.catalog import Catalog
from millstream.sql.engine import PersistentQuery, apply
from millstream.sql.environment import Environment
from millstream.sql.functions.loading import load_functions
from millstream.sql.parser import parse_one
from millstream.sql.processing_log import QueryLog, failing, processing_log
from millstream.streams.topology import Topology

log = logging.getLogger("millstream.sql")


@dataclass(frozen=True)
class Recipe:
    """What a statement was accepted with. `number` is the place of its command, part of the query's id."""

    statement: str
    catalog: Catalog
    settings: Mapping[str, Any] = field(default_factory=dict)
    number: int = 0
    registry: SchemaRegistry | None = None
    udf_modules: tuple[str, ...] = ()
    client: ClientConfig | None = None
    log_topic: str | None = None

    def environment(self) -> Environment:
        return Environment(load_functions(self.udf_modules), self.registry, dict(self.settings))

    def query(self) -> PersistentQuery:
        sink = processing_log(self.client, self.log_topic, self.settings)
        outcome = apply(
            parse_one(self.statement),
            self.catalog,
            self.environment(),
            number=self.number,
            log=failing(sink, self.settings),
        )
        if outcome.query is None:
            raise ValueError(f"this statement starts no query: {self.statement}")
        if isinstance(sink, QueryLog):
            sink.query_id = outcome.query.id
        return outcome.query

    def topology(self) -> SqlTopology:
        made = self.query().topology()
        made.__class__ = SqlTopology
        assert isinstance(made, SqlTopology)
        made.recipe = self
        begin = str(self.settings.get("auto.offset.reset", "latest")).lower()
        for node in made.nodes.values():
            if node.type == "source" and not any(topic in made.internal for topic in node.topics):
                tables = {one.topic for one in self.catalog.sources.values() if one.kind == "TABLE"}
                earliest = begin == "earliest" or any(topic in tables for topic in node.topics)
                node.reset = "earliest" if earliest else "latest"
        return made


class SqlTopology(Topology):
    recipe: Recipe

    def __reduce__(self) -> tuple[Any, ...]:
        return (_remade, (self.recipe,))


def _remade(recipe: Recipe) -> SqlTopology:
    return recipe.topology()
