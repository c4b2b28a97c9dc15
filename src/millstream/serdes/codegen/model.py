"""Classes to be: records and enums, with names that Python allows."""

import keyword
import re
from dataclasses import dataclass, field

NO_DEFAULT = ""
RESERVED = {
    "to_dict",
    "from_dict",
    "SCHEMA",
    "SCHEMA_TYPE",
    "NAMES",
    "Record",
    "StrEnum",
    "dataclass",
    "field",
}


@dataclass(slots=True)
class FieldClass:
    name: str  # as the schema has it
    type: str  # as Python writes it
    default: str = NO_DEFAULT  # an expression
    doc: str = ""


@dataclass(slots=True)
class RecordClass:
    name: str
    fields: list[FieldClass] = field(default_factory=list)
    doc: str = ""


@dataclass(slots=True)
class EnumClass:
    name: str
    symbols: list[str] = field(default_factory=list)
    doc: str = ""


@dataclass(slots=True)
class Module:
    """Classes in the order in which they are to be written; `root` is what the schema itself describes."""

    classes: list[RecordClass | EnumClass] = field(default_factory=list)
    root: str = ""
    taken: dict[str, str] = field(default_factory=dict)  # full name -> class name

    def class_name(self, full_name: str) -> str:
        """A class's name for a type's full name: the last part of it, unless two types share that."""
        if full_name not in self.taken:
            base = identifier(full_name.rpartition(".")[2])
            base = base[:1].upper() + base[1:]
            wanted, number = base, 2
            while wanted in self.taken.values() or wanted in RESERVED:
                wanted = f"{base}{number}"
                number += 1
            self.taken[full_name] = wanted
        return self.taken[full_name]


def identifier(name: str) -> str:
    """The name itself if Python allows it, else the nearest that it does."""
    made = re.sub(r"\W", "_", name) or "_"
    if made[0].isdigit():
        made = f"_{made}"
    if keyword.iskeyword(made) or made in RESERVED or (made.startswith("__") and not made.endswith("__")):
        made = f"{made.lstrip('_')}_"
    return made


def optional(python_type: str) -> str:
    return (
        python_type
        if python_type == "None" or python_type.endswith("| None") or python_type == "Any"
        else f"{python_type} | None"
    )
