"""`from_registry` and `to_registry`: columns of a schema that a registry knows.

The schema is fetched here, on the driver, when the query is made: the column's type must be known then, and
so a registry that does not answer, a subject that does not exist or a schema that cannot be a column is one
line before anything runs.
"""

from collections.abc import Callable
from json import JSONDecodeError
from typing import TYPE_CHECKING, Any

from millstream.schemas import InvalidSchema, parse
from millstream.serdes import RegistryRefused, RegistryUnreachable
from millstream.settings.redaction import hide_url_passwords
from millstream.spark.columns.decoding import Access, Reader, Reading, column_type, decode_batch
from millstream.spark.columns.encoding import Writing, encode_batch, input_type
from millstream.spark.errors import OptionError, PipelineError

if TYPE_CHECKING:
    from pyspark.sql import Column

TYPES = ("AVRO", "JSON", "PROTOBUF")


def from_registry(
    value: "Column | str",
    registry: str,
    *,
    topic: str | None = None,
    subject: str | None = None,
    version: int | str = "latest",
    reader: str | None = None,
    schema_type: str = "AVRO",
    message: str | None = None,
    key: bool = False,
    headers: "Column | str | None" = None,
    corrupt: str | None = "_corrupt",
    user: str | None = None,
    password: str = "",
    ca_file: str | None = None,
) -> "Column":
    """Decode a binary column in Confluent's wire format into a struct.

    registry   the registry's address, http://host:port (several with commas)
    topic      read with the newest schema of `<topic>-value` (or `-key`, with key=True)
    subject    the same, for any subject; `version` for another version than the newest
    reader     or a schema of your own as text, with its `schema_type` AVRO, JSON or PROTOBUF
    message    for Protobuf, which message of the file; the first one otherwise
    headers    the column with the record's headers, where producers put the schema's id or guid there
    corrupt    the name of the field that says what is wrong with a record; None: a bad record stops the query

    Records of older and newer schemas are read by this one schema. A null stays null.
    """

    access = Access(registry, user, password, ca_file)
    chosen = _reader(access, topic, subject, version, reader, schema_type, message, key)
    reading = Reading(access, chosen, key, corrupt)
    spark_type = _spark_type(_what(topic, subject, reader, key), lambda: column_type(chosen, corrupt))

    if headers is None:

        def decode(values):  # type: ignore[no-untyped-def]
            return _plainly(decode_batch, reading, values)

    else:

        def decode(values, heads):  # type: ignore[no-untyped-def,misc]
            return _plainly(decode_batch, reading, values, heads)

    made = arrow_udf_of(decode, spark_type)
    columns = (value,) if headers is None else (value, headers)
    # Spark would run it again for every filter that it pushes below; what it thinks is random is run once.
    found: Column = made.asNondeterministic()(*columns)
    return found


def to_registry(
    value: "Column | str",
    registry: str,
    *,
    topic: str | None = None,
    subject: str | None = None,
    schema: str | None = None,
    schema_type: str = "AVRO",
    message: str | None = None,
    key: bool = False,
    auto_register: bool = True,
    corrupt: str | None = None,
    user: str | None = None,
    password: str = "",
    ca_file: str | None = None,
) -> "Column":
    """Encode a struct column into Confluent's wire format.

    topic, subject   under which subject the schema is (`<topic>-value`, or `-key` with key=True)
    schema           the schema as text, registered now unless auto_register=False; without it, the newest of
                     the subject
    corrupt          give a name, and the column is struct<data: binary, name: struct<error, data>>, with what
                     could not be
                     encoded as JSON in it; without a name, a value that does not fit its schema stops the
                     query (a null instead would be a tombstone)
    """
    from pyspark.sql import functions

    access = Access(registry, user, password, ca_file)
    where = _subject(topic, subject, key)
    schema_id, chosen = _writer(access, where, schema, schema_type, message, auto_register)
    writing = Writing(access, schema_id, chosen, corrupt)
    wanted = _spark_type(where, lambda: input_type(chosen))
    spark_type = _spark_type(where, lambda: writing.output_type)

    def encode(values):  # type: ignore[no-untyped-def]
        return _plainly(encode_batch, writing, values)

    given = functions.col(value) if isinstance(value, str) else value
    made = arrow_udf_of(encode, spark_type)
    found: Column = made.asNondeterministic()(given.cast(wanted))
    return found


def arrow_udf_of(act: Callable[..., Any], spark_type: Any) -> Any:
    """Spark reads the type of a UDF from its annotations."""
    import pyarrow as pa
    from pyspark.sql import functions

    names = act.__code__.co_varnames[: act.__code__.co_argcount]
    act.__annotations__ = {**dict.fromkeys(names, pa.Array), "return": pa.Array}
    make: Any = functions.arrow_udf  # type: ignore[attr-defined]
    return make(act, spark_type)


def _plainly(act: Callable[..., Any], *given: Any) -> Any:
    from millstream.spark.errors import plainly

    with plainly():
        return act(*given)


def _subject(topic: str | None, subject: str | None, key: bool) -> str:
    if subject:
        return subject
    if topic:
        return f"{topic}-{'key' if key else 'value'}"
    raise OptionError("a registry column needs topic=..., subject=... or a schema of your own")


def _what(topic: str | None, subject: str | None, reader: str | None, key: bool) -> str:
    return "the reader's schema" if reader is not None else f"subject '{_subject(topic, subject, key)}'"


def _reader(
    access: Access,
    topic: str | None,
    subject: str | None,
    version: int | str,
    text: str | None,
    schema_type: str,
    message: str | None,
    key: bool,
) -> Reader:
    if text is not None:
        return Reader(_checked(_known_type(schema_type), text), text, (), message)
    name = _subject(topic, subject, key)

    def look_up() -> Reader:
        registry = access.connect()
        if version == "latest":
            found = registry.latest(name)
        else:
            found = registry.schema(int(registry.version(name, version)["id"]))
        return Reader(found.type, found.text, tuple(found.resolved.items()), message)

    found: Reader = _with_clear_errors(access, name, look_up)
    return found


def _writer(
    access: Access, subject: str, text: str | None, schema_type: str, message: str | None, register: bool
) -> tuple[int, Reader]:
    def look_up() -> tuple[int, Reader]:
        registry = access.connect()
        if text is None:
            found = registry.latest(subject)
            return found.id, Reader(found.type, found.text, tuple(found.resolved.items()), message)
        known_type = _known_type(schema_type)
        number = (registry.register if register else registry.look_up)(subject, text, known_type)
        return number, Reader(known_type, text, (), message)

    found: tuple[int, Reader] = _with_clear_errors(access, subject, look_up)
    return found


def _known_type(schema_type: str) -> str:
    if schema_type.upper() not in TYPES:
        raise OptionError(f"schema_type must be {', '.join(TYPES)}, not '{schema_type}'")
    return schema_type.upper()


def _checked(schema_type: str, text: str) -> str:
    """A schema of the user's own is held to what a registry would hold it to."""
    try:
        parse(schema_type, text, new=True)
    except InvalidSchema as error:
        line = " ".join(str(error).split())
        raise OptionError(f"reader=... is not a schema of type {schema_type}: {line}") from None
    return schema_type


def _with_clear_errors(access: Access, subject: str, look_up: Callable[[], Any]) -> Any:
    try:
        return look_up()
    except RegistryUnreachable as error:
        raise PipelineError(str(error)) from None
    except RegistryRefused as error:
        where = hide_url_passwords(access.url)
        raise PipelineError(f"the registry at {where} refuses subject '{subject}': {error}") from None
    except ValueError as error:  # an address that is none
        raise OptionError(str(error)) from None


def _spark_type(what: str, make: Callable[[], Any]) -> Any:
    from pyspark.sql.pandas.types import from_arrow_type

    try:
        return from_arrow_type(make(), prefer_timestamp_ntz=True)
    except InvalidSchema as error:
        raise PipelineError(f"{what} cannot be read: {error}") from None
    except JSONDecodeError as error:
        raise PipelineError(f"{what} cannot be read: it is not JSON ({error})") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PipelineError(f"{what} cannot be a column: {error}") from None
