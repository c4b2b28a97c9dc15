"""Errors, with the names that Java's have: they stand in the headers of dead letters and in traces."""

from __future__ import annotations


class ConnectError(Exception):
    """Something in a connector, a converter or a transform went wrong."""

    java_class = "org.apache.kafka.connect.errors.ConnectException"


class DataError(ConnectError):
    """A value does not fit its schema, or cannot be converted."""

    java_class = "org.apache.kafka.connect.errors.DataException"


class SchemaBuilderError(DataError):
    """A schema cannot be built like that."""

    java_class = "org.apache.kafka.connect.errors.SchemaBuilderException"


class RetriableError(ConnectError):
    """The same again may succeed later: after `delay` seconds, if it says so."""

    java_class = "org.apache.kafka.connect.errors.RetriableException"

    def __init__(self, *args: object, delay: float | None = None) -> None:
        super().__init__(*args)
        self.delay = delay


class IllegalArgumentError(ConnectError):
    """What Java reports as an illegal argument."""

    java_class = "java.lang.IllegalArgumentException"


class NullPointerError(ConnectError):
    """What Java reports as a null pointer: something is missing that had to be there."""

    java_class = "java.lang.NullPointerException"
