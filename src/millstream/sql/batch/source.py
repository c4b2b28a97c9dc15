"""format("millstream_sql"): the rows of a stream or table, from the records that format("millstream") reads.

The option `source` is the catalog's entry as JSON, so a task needs no catalog; everything else is an option
of format("millstream"). A record that cannot be read is left out, as in a streaming query. The rows of a
table carry what is needed to find the newest of a key: its bytes, and whether the record is a tombstone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from millstream.serdes.client import RegistryUnreachable
from millstream.spark.errors import said_plainly

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType as SparkStruct

    from millstream.sql.catalog import Source
    from millstream.sql.types import SqlType

NAME = "millstream_sql"
KEY, DELETED = "__key", "__deleted"
_OWN = ("source", "registry")


def columns_of(source: Source) -> list[tuple[str, SqlType]]:
    """What a query sees: the declared columns, then those of the record."""
    from millstream.sql.catalog import PSEUDO_COLUMNS, WINDOW_BOUNDS

    found = [(one.name, one.type) for one in source.schema.columns]
    found += PSEUDO_COLUMNS.items()
    if source.window is not None:
        found += WINDOW_BOUNDS.items()
    return found


class SqlDataSource(DataSource):
    options: MutableMapping[str, str]

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        from millstream.sql.batch.spark_types import ddl, spark_name

        source = _source(self.options)
        found = [f"{spark_name(name)} {ddl(type_)}" for name, type_ in columns_of(source)]
        if source.kind == "TABLE":
            found += [f"{KEY} binary", f"{DELETED} boolean"]
        return ", ".join(found)

    @said_plainly
    def reader(self, schema: SparkStruct) -> DataSourceReader:
        from millstream.spark.source import make_reader

        source = _source(self.options)
        given = {name: value for name, value in self.options.items() if name.lower() not in _OWN}
        if source.schema.headers:
            given["includeHeaders"] = "true"
        inner = make_reader(given, _of_records(bool(source.schema.headers)))
        return SqlReader(inner, dict(self.options))


def _source(options: MutableMapping[str, str]) -> Source:
    from millstream.sql.catalog_json import read_source

    return read_source(json.loads(options["source"]))


def _of_records(headers: bool) -> SparkStruct:
    """The columns of format("millstream") that rows are made from."""
    from pyspark.sql.types import (
        ArrayType,
        BinaryType,
        IntegerType,
        LongType,
        StringType,
        StructField,
        StructType,
        TimestampType,
    )

    fields = [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
    ]
    if headers:
        pair = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
        fields.append(StructField("headers", ArrayType(pair)))
    return StructType(fields)


class SqlReader(DataSourceReader):
    def __init__(self, inner: DataSourceReader, options: dict[str, str]) -> None:
        self._inner, self._options = inner, options

    def partitions(self) -> Any:
        return self._inner.partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        decode = RowDecoder(_source(self._options), self._options.get("registry", ""))
        for batch in self._inner.read(partition):
            yield decode.batch(batch)


class RowDecoder:
    """Batches of records into batches of rows."""

    def __init__(self, source: Source, registry: str) -> None:
        from millstream.serdes.client import SchemaRegistry
        from millstream.sql.environment import Environment
        from millstream.sql.functions import FUNCTIONS
        from millstream.sql.plan import serdes_of
        from millstream.sql.plan_sources import header_reader, stamp_reader

        found = SchemaRegistry(**json.loads(registry)) if registry else None
        key, value = serdes_of(source, Environment(FUNCTIONS, found))
        self._source = source
        self._read_key, self._read_value = key.reader(source.topic), value.reader(source.topic)
        self._stamp = stamp_reader(source)
        self._headers = [header_reader(one.header or "") for one in source.schema.headers]
        self._is_table = source.kind == "TABLE"
        self._columns = _column_indexes(source)

    def batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        from millstream.sql.batch.spark_types import arrow_type, to_arrow

        rows = list(self._rows(batch))
        names, arrays = [], []
        for index, (name, type_) in enumerate(columns_of(self._source)):
            convert = to_arrow(type_)
            values = [row[index] for row in rows]
            if convert is not None:
                values = [convert(value) for value in values]
            names.append(name)
            arrays.append(pa.array(values, arrow_type(type_)))
        if self._is_table:
            names += [KEY, DELETED]
            arrays.append(pa.array([row[-2] for row in rows], pa.binary()))
            arrays.append(pa.array([row[-1] for row in rows], pa.bool_()))
        return pa.RecordBatch.from_arrays(arrays, names)

    def _rows(self, batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
        import pyarrow as pa

        columns = {name: batch.column(name) for name in batch.schema.names}
        times = columns["timestamp"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
        headers = columns["headers"].to_pylist() if self._headers else [None] * batch.num_rows
        for key, value, partition, offset, time, pairs in zip(
            columns["key"].to_pylist(),
            columns["value"].to_pylist(),
            columns["partition"].to_pylist(),
            columns["offset"].to_pylist(),
            times,
            headers,
            strict=True,
        ):
            found = self._row(key, value, (time // 1000, partition, offset), pairs)
            if found is not None:
                yield found

    def _row(
        self, key: Any, value: Any, position: tuple[int, int, int], pairs: Any
    ) -> tuple[Any, ...] | None:
        """None for what is no row: a record that cannot be read, a stream's record without a value."""
        if value is None and not self._is_table:
            return None
        try:
            own, read = self._read_key(key), self._read_value(value)
            bounds: tuple[int, ...] = ()
            if self._source.window is not None and own is not None:
                bounds = (own.window.start, own.window.end)
                own = own.key
            if self._stamp is not None and read is not None:
                position = (int(self._stamp(own, read)), *position[1:])
        except RegistryUnreachable:
            raise
        except Exception:
            return None
        schema = self._source.schema
        parts = {
            "key": own or (None,) * len(schema.key),
            "value": read or (None,) * len(schema.value),
            "header": [one([(pair["key"], pair["value"]) for pair in pairs or ()]) for one in self._headers],
        }
        row = [parts[namespace][index] for namespace, index in self._columns]
        bounds = bounds or ((0, 0) if self._source.window is not None else ())
        end = (key, value is None) if self._is_table else ()
        return (*row, *position, *bounds, *end)


def _column_indexes(source: Source) -> list[tuple[str, int]]:
    """Where each column of the schema is: among the keys, the values or the headers."""
    counts = {"key": 0, "value": 0, "header": 0}
    found: list[tuple[str, int]] = []
    for column in source.schema.columns:
        found.append((column.namespace, counts[column.namespace]))
        counts[column.namespace] += 1
    return found
