"""Types as written into types."""

from __future__ import annotations

from collections.abc import Callable

from millstream.sql import ast
from millstream.sql.catalog import Catalog
from millstream.sql.errors import sql_error
from millstream.sql.types import (
    PRIMITIVES,
    SqlType,
    array_type,
    decimal_type,
    map_type,
    struct_type,
)


def resolver(catalog: Catalog) -> Callable[[ast.TypeName], SqlType]:
    """Names of types as this catalog knows them."""

    def resolve(name: ast.TypeName) -> SqlType:
        if name.name == "ARRAY" and name.arguments:
            return array_type(resolve(name.arguments[0]))
        if name.name == "MAP" and name.arguments:
            return map_type(resolve(name.arguments[0]), resolve(name.arguments[1]))
        if name.name == "STRUCT" and not name.parameters:
            return struct_type(*((own, resolve(field)) for own, field in name.fields))
        upper = name.name.upper()
        if upper in ("DECIMAL", "DEC") and len(name.parameters) == 2 and all(map(_is_size, name.parameters)):
            return decimal_type(int(name.parameters[0]), int(name.parameters[1]))
        if upper in ("DECIMAL", "DEC"):
            raise sql_error("DECIMAL parameters", name.location)
        primitive = PRIMITIVES.get(upper)
        if primitive is not None and not name.quoted:
            return primitive
        found = catalog.type(name.name)
        if found is None:
            raise sql_error("unknown type", name.location, name=name.name)
        return found

    return resolve


def _is_size(parameter: str) -> bool:
    """And not `STRING`, nor more digits than Python reads."""
    return parameter.isdigit() and len(parameter) < 20
