"""The stream over the processing log, made at the start where a setting wants it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from millstream.sql.errors import SqlError
from millstream.sql.processing_log import stream_over_it

if TYPE_CHECKING:
    from millstream.sql.server.service import SqlService

log = logging.getLogger("millstream.sql")

_TOPIC = "ksql.logging.processing.topic."


def make_log_stream(service: SqlService) -> None:
    """A server without it is still of use: what stands in its way is only said."""
    config = service.config
    topic, name = config.processing_log, config.value("ksql.logging.processing.stream.name")
    partitions = None if service.partitions_of(topic) else config.value(_TOPIC + "partitions")
    statement = stream_over_it(name, topic, partitions, config.value(_TOPIC + "replication.factor"))
    try:
        service.execute(statement, {}, {})
    except SqlError as error:
        log.warning("the stream over the processing log cannot be made: %s", error)
