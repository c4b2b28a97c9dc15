"""What SET may set: names that ksqlDB, Kafka Streams or a Kafka client know, and values that they take.

A name that nobody knows is most often a mistyped one, and a query that quietly starts at the wrong end is
hard to explain. Names that begin with `ksql.` and are not about Streams are all taken: ksqlDB has many more
settings than this server looks at, and statements that set them should go on working.
"""

from __future__ import annotations

from collections.abc import Iterable

from millstream.sql.errors import sql_error

STREAMS = "ksql.streams."
_PARTS = (
    "consumer.",
    "producer.",
    "main.consumer.",
    "restore.consumer.",
    "global.consumer.",
    "admin.",
    "topic.",
)
_SECURITY = ("ssl.", "sasl.", "security.", "metric", "__")

# Of clients.
_CLIENT_NAMES = """
    bootstrap.servers client.id client.dns.lookup client.rack connections.max.idle.ms
    interceptor.classes metadata.max.age.ms metadata.recovery.strategy receive.buffer.bytes
    reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms retries retry.backoff.max.ms
    retry.backoff.ms send.buffer.bytes socket.connection.setup.timeout.max.ms
    socket.connection.setup.timeout.ms enable.metrics.push default.api.timeout.ms
"""
# Of consumers.
_CONSUMER_NAMES = """
    allow.auto.create.topics auto.commit.interval.ms auto.include.jmx.reporter auto.offset.reset
    check.crcs enable.auto.commit exclude.internal.topics fetch.max.bytes fetch.max.wait.ms
    fetch.min.bytes group.id group.instance.id group.protocol group.remote.assignor
    heartbeat.interval.ms isolation.level key.deserializer max.partition.fetch.bytes
    max.poll.interval.ms max.poll.records partition.assignment.strategy session.timeout.ms
    value.deserializer
"""
# Of producers.
_PRODUCER_NAMES = """
    acks batch.size buffer.memory compression.type compression.gzip.level compression.lz4.level
    compression.zstd.level delivery.timeout.ms enable.idempotence key.serializer linger.ms max.block.ms
    max.in.flight.requests.per.connection max.request.size metadata.max.idle.ms partitioner.class
    partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms partitioner.ignore.keys
    transaction.timeout.ms transactional.id value.serializer
"""
# Of Kafka Streams.
_STREAMS_NAMES = """
    acceptable.recovery.lag application.id application.server buffered.records.per.partition
    built.in.metrics.version cache.max.bytes.buffering commit.interval.ms default.client.supplier
    default.dsl.store default.deserialization.exception.handler default.key.serde
    default.list.key.serde.inner default.list.key.serde.type default.list.value.serde.inner
    default.list.value.serde.type default.production.exception.handler default.timestamp.extractor
    default.value.serde deserialization.exception.handler dsl.store.suppliers.class
    input.buffer.max.bytes max.task.idle.ms max.warmup.replicas num.standby.replicas num.stream.threads
    poll.ms probing.rebalance.interval.ms processing.exception.handler processing.guarantee
    production.exception.handler rack.aware.assignment.tags rack.aware.assignment.strategy
    repartition.purge.interval.ms replication.factor rocksdb.config.setter state.cleanup.delay.ms
    state.dir statestore.cache.max.bytes task.assignor.class task.timeout.ms topology.optimization
    upgrade.from window.size.ms window.store.change.log.additional.retention.ms
    windowed.inner.class.serde windowstore.changelog.additional.retention.ms
"""
_NAMES = frozenset(f"{_CLIENT_NAMES} {_CONSUMER_NAMES} {_PRODUCER_NAMES} {_STREAMS_NAMES}".split())
_RESETS = ("latest", "earliest", "none")


def _known(name: str) -> bool:
    if name.startswith(("ksql.", "millstream.")) and not name.startswith(STREAMS):
        return True
    bare = name.removeprefix(STREAMS)
    for part in _PARTS:
        if bare.startswith(part):
            return part == "topic." or _known(bare.removeprefix(part))
    return bare in _NAMES or bare.startswith(_SECURITY)


def check_name(name: str) -> None:
    if not _known(name):
        raise sql_error("no such setting", name=name)


def check_property(name: str, value: object) -> None:
    """What SET refuses, and its reasons."""
    check_name(name)
    if name.removeprefix(STREAMS).removeprefix("consumer.") == "auto.offset.reset" and value not in _RESETS:
        why = f"auto.offset.reset: String must be one of: {', '.join(_RESETS)}"
        raise sql_error("setting value", name=name, value=value, why=why)


def check_denied(names: Iterable[str], denied: Iterable[str]) -> None:
    """`denied` is `ksql.properties.overrides.denylist`: what clients may not change."""
    kept = {name.removeprefix(STREAMS) for name in denied}
    for name in names:
        if name.removeprefix(STREAMS) in kept:
            raise sql_error("setting denied", name=name)
