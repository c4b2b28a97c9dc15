"""Pieces of generated Python: a text with its SQL type, and the namespace that such texts refer to.

`codegen` makes one `Code` of each expression; whoever puts texts together into functions (projections,
filters, fused loops) has one `Names` for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from millstream.sql import ast, runtime
from millstream.sql.types import SqlType


@dataclass(frozen=True, slots=True)
class Code:
    """`type` is None for the literal NULL. `safe` says that it can neither raise nor be changed by a cast of
    its type; `never_null` that it is not None. `literal` is the value where it is one."""

    text: str
    type: SqlType | None
    safe: bool = False
    never_null: bool = False
    literal: ast.Literal | None = None


class Scope(Protocol):
    """What names mean: the code of a column, or an error."""

    def column(self, node: ast.Column) -> Code: ...


class Names:
    """The namespace of generated code: objects by name, each once."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {"_helpers": runtime}
        self._count = 0
        for name in runtime.HELPERS:
            self.objects["_" + name] = getattr(runtime, name)

    def add(self, thing: Any, prefix: str = "f") -> str:
        self._count += 1
        name = f"{prefix}{self._count}"
        self.objects[name] = thing
        return name

    def fresh(self, prefix: str = "x") -> str:
        self._count += 1
        return f"{prefix}{self._count}"


def is_plain(source: str) -> bool:
    """Whether a text is only a name or an element of a row: cheap to write twice."""
    return source.replace("[", "").replace("]", "").replace("_", "").isalnum() and "(" not in source
