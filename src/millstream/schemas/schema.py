"""What the three schema languages have in common."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


class InvalidSchema(ValueError):
    """The text is not a schema; the message says where and why."""


@dataclass(frozen=True, slots=True, order=True)
class Reference:
    """A schema used by another one: the name that the text uses, and the subject and version where it is
    found."""

    name: str
    subject: str
    version: int


class ParsedSchema(ABC):
    """One schema, parsed. Two schemas are the same when type, canonical text and references are."""

    schema_type: str
    references: tuple[Reference, ...]
    resolved: Mapping[str, str]

    def __init__(self, references: Sequence[Reference], resolved: Mapping[str, str]) -> None:
        self.references = tuple(references)
        self.resolved = resolved

    @property
    @abstractmethod
    def canonical(self) -> str:
        """The text that is stored: what was sent, in one way of writing it."""

    @property
    @abstractmethod
    def name(self) -> str | None:
        """The full name of the record or message that the schema describes."""

    @abstractmethod
    def normalized(self) -> "ParsedSchema":
        """The same schema with everything in order that has no meaning."""

    @abstractmethod
    def problems_reading(self, previous: "ParsedSchema") -> list[str]:
        """Why data written with `previous` cannot always be read with this schema; empty when it can.

        In each message, the first `%s` stands for this schema, the second for the other one.
        """

    @abstractmethod
    def has_top_level_field(self, field: str) -> bool: ...

    def formatted(self, form: str) -> str:
        """The text in another form; an unknown form gives the canonical text."""
        return self.canonical

    def validate(self, *, strict: bool = False) -> None:  # noqa: B027 - nothing is left to find in Avro
        """Raise InvalidSchema for what parsing alone does not find; `strict`, for field names that Confluent
        reserves, too."""

    def sorted_references(self) -> list[Reference]:
        return sorted(set(self.references))
