"""The columns of a reader: those of Spark's Kafka source, or the ones among them that the user's schema
names.

Kept apart from `rows`: processes that only plan need this, but neither Arrow nor the decoder.
"""

from typing import TYPE_CHECKING

from millstream.spark.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

COLUMNS = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
}
HEADERS = {"headers": "array<struct<key:string,value:binary>>"}


def columns(headers: bool) -> dict[str, str]:
    """The names and types of a reader's columns."""
    return COLUMNS | (HEADERS if headers else {})


def ddl(headers: bool) -> str:
    """The schema of a reader."""
    return ", ".join(f"{name} {spark_type}" for name, spark_type in columns(headers).items())


def check(schema: "StructType", headers: bool) -> tuple[str, ...]:
    """The columns of a schema that the user gave: any of ours, in any order. That spares Spark the others."""
    known = COLUMNS | HEADERS
    for field in schema.fields:
        spark_type = field.dataType.simpleString()
        if field.name not in known:
            raise OptionError(f"the schema has a column '{field.name}'; a topic has {', '.join(known)}")
        if spark_type != known[field.name]:
            raise OptionError(
                f"the schema says {spark_type} for column '{field.name}', which is {known[field.name]}"
            )
        if field.name == "headers" and not headers:
            raise OptionError(
                "the schema has a column 'headers': that needs the option 'includeHeaders' = true"
            )
    return tuple(field.name for field in schema.fields)
