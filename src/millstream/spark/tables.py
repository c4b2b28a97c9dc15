"""CREATE TABLE ... USING millstream OPTIONS (...): where the options of a table are kept.

Spark shows a table's options to a source written in Python once, when the table is created without a list of
columns and Spark asks which ones it has. From then on it keeps the columns and hands over nothing else. So
the answer carries the options with it, as metadata of the first column, and the reader finds them there.

Metadata of columns is shown to whoever may see the table, so options with secrets in them are refused. A
table is for reading, as with Spark's own connector; a temporary view can be written too.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from millstream.spark.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_CREATING = "provider"
"""Among the options only while a table is created; the table's own have `_PREFIX` then."""
_PREFIX = "option."
_METADATA = "millstream.options"
_SECRETS = ("password", "jaas", "keystore.key", "secret")
_JSON_TYPES: dict[str, Any] = {"int": "integer", "bigint": "long"}
_HEADERS_TYPE = {
    "type": "array",
    "containsNull": True,
    "elementType": {
        "type": "struct",
        "fields": [
            {"name": "key", "type": "string", "nullable": True, "metadata": {}},
            {"name": "value", "type": "binary", "nullable": True, "metadata": {}},
        ],
    },
}
USE_A_VIEW = "use CREATE TEMPORARY VIEW name (columns) USING millstream OPTIONS (...)"


def options_of_new_table(given: Mapping[str, str]) -> dict[str, str] | None:
    """While a table is created: what its OPTIONS say. None if this is no table."""
    if _CREATING not in given:
        return None
    options = {
        name[len(_PREFIX) :]: value for name, value in given.items() if name.lower().startswith(_PREFIX)
    }
    for name in options:
        if any(secret in name.lower() for secret in _SECRETS):
            raise OptionError(f"option '{name}' would be kept in the catalog for all to read: {USE_A_VIEW}")
    return options


def schema_of_new_table(columns: Mapping[str, str], options: Mapping[str, str]) -> "StructType":
    """The columns, with the table's options in them."""
    from pyspark.sql.types import StructType

    fields = [
        {
            "name": name,
            "type": _HEADERS_TYPE if name == "headers" else _JSON_TYPES.get(spark_type, spark_type),
            "nullable": True,
            "metadata": {},
        }
        for name, spark_type in columns.items()
    ]
    fields[0]["metadata"] = {_METADATA: json.dumps(dict(options))}
    return StructType.fromJson({"type": "struct", "fields": fields})


def with_table_options(given: Mapping[str, str], schema: "StructType") -> Mapping[str, str]:
    """A reader's options: its own, and below them those of the table that it reads."""
    for field in schema.fields:
        if _METADATA in (field.metadata or {}):
            own = {name.lower() for name in given}
            kept: dict[str, str] = json.loads(field.metadata[_METADATA])
            return {**{name: text for name, text in kept.items() if name.lower() not in own}, **given}
    return given


def refuse_insert(schema: "StructType") -> None:
    if any(_METADATA in (field.metadata or {}) for field in schema.fields):
        raise OptionError(f"a table of topics is for reading: to insert, {USE_A_VIEW}")
