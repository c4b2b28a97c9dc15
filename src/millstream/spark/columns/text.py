"""JSON and delimited text without a registry: Spark's own functions, with the same `_corrupt` field beside
the columns.

Spark's `from_json` and `from_csv` do the work. What they lack is a word on what was wrong next to the
record's own bytes, in the same form as `from_registry` gives it, so that `dead_letters` and a user's `where`
treat all alike.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

_ORIGINAL = "__original"


def from_json(
    value: "Column | str",
    schema: "StructType | str",
    *,
    corrupt: str | None = "_corrupt",
    options: dict[str, str] | None = None,
) -> "Column":
    """JSON text (a string or binary column) as a struct. `schema` is Spark's, or its DDL text; `options` are
    Spark's."""
    from pyspark.sql import functions

    return _parsed(
        functions.from_json, value, schema, corrupt, options or {}, "the text is not JSON of the given shape"
    )


def from_delimited(
    value: "Column | str",
    schema: "StructType | str",
    *,
    separator: str = ",",
    corrupt: str | None = "_corrupt",
    options: dict[str, str] | None = None,
) -> "Column":
    """A line of delimited text (a string or binary column) as a struct, quoted as in CSV files."""
    from pyspark.sql import functions

    given = {"sep": separator, **(options or {})}
    return _parsed(
        _from_csv(functions), value, schema, corrupt, given, "the line does not have the given columns"
    )


def _from_csv(functions: Any) -> Any:
    """Spark's function takes its columns as DDL text only."""

    def parse(value: Any, schema: Any, options: dict[str, str]) -> Any:
        ddl = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in schema.fields)
        return functions.from_csv(value, functions.lit(ddl), options)

    return parse


def _parsed(
    parse: Any,
    value: "Column | str",
    schema: "StructType | str",
    corrupt: str | None,
    options: dict[str, str],
    reason: str,
) -> "Column":
    from pyspark.sql import functions
    from pyspark.sql.types import StringType, StructType, _parse_datatype_string

    wanted: Any = _parse_datatype_string(schema) if isinstance(schema, str) else schema
    given = functions.col(value) if isinstance(value, str) else value
    text = given.cast("string")
    if corrupt is None:
        found: Column = parse(text, wanted, {"mode": "FAILFAST", **options})
        return found
    known = StructType([*wanted.fields]).add(_ORIGINAL, StringType())
    parsed = parse(text, known, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _ORIGINAL, **options})
    complaint = functions.when(
        parsed.isNull() | parsed[_ORIGINAL].isNotNull(),  # of text without anything in it Spark makes a null
        functions.struct(functions.lit(reason).alias("error"), given.cast("binary").alias("data")),
    )
    fields = [parsed[field.name].alias(field.name) for field in wanted.fields]
    return functions.when(given.isNotNull(), functions.struct(*fields, complaint.alias(corrupt)))
