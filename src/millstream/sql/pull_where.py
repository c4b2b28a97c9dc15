"""What the WHERE of a pull query says about keys.

The condition is taken apart into alternatives whose parts all have to hold. An alternative that fixes every
key column by = is a lookup; any other needs a scan. Where scans are switched off
(`ksql.query.pull.table.scan.enabled`), the first part that would need one is refused, in ksqlDB's words and
in its order. With scans, conditions that ksqlDB refuses (IS NULL, NOT, a boolean column) are filters like all
others.
"""

from __future__ import annotations

from itertools import product

from millstream.sql import ast
from millstream.sql.catalog import WINDOW_BOUNDS, Source
from millstream.sql.errors import SqlError
from millstream.sql.expression_text import text
from millstream.sql.types import Base, quoted

MORE = " See https://cnfl.io/queries for more info."
PUSH = "\nAdd EMIT CHANGES if you intended to issue a push query."
_BOUNDS = ("=", ">", ">=", "<", "<=")
_NO_LOOKUP = ("<>", "!=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM")


def invalid_where(message: str, windowed: bool) -> SqlError:
    bounds = (
        "\n - (optionally) limits the time bounds of the windowed table."
        "\n\t Bounds on [`WINDOWSTART`, `WINDOWEND`] are supported"
        "\n\t Supported operators are [EQUAL, GREATER_THAN, GREATER_THAN_OR_EQUAL, LESS_THAN, "
        "LESS_THAN_OR_EQUAL]"
    )
    return SqlError(
        f"{message}. {MORE}{PUSH}"  # noqa: S608
        "\nPull queries require a WHERE clause that:"
        "\n - includes a key equality expression, e.g. `SELECT * FROM X WHERE <key-column> = Y;`."
        "\n - in the case of a multi-column key, is a conjunction of equality expressions that cover all "
        f"key columns.{bounds if windowed else ''}"
        "\nIf more flexible queries are needed, table scans can be enabled by setting "
        "ksql.query.pull.table.scan.enabled=true."
    )


def disjuncts(node: ast.Expression) -> list[list[ast.Expression]]:
    """A condition as alternatives of conditions that all have to hold."""
    if isinstance(node, ast.Logical) and node.operator == "OR":
        return disjuncts(node.left) + disjuncts(node.right)
    if isinstance(node, ast.Logical):
        return [left + right for left, right in product(disjuncts(node.left), disjuncts(node.right))]
    if isinstance(node, ast.In):
        return [[ast.Compare("=", node.value, item, location=node.location)] for item in node.items]
    if isinstance(node, ast.Between):
        low = ast.Compare(">=", node.value, node.lower, location=node.location)
        high = ast.Compare("<=", node.value, node.upper, location=node.location)
        return [[low, high]]
    return [[node]]


def check_where(source: Source, where: ast.Expression, scans: bool) -> None:
    """Refuses what no lookup can answer where there are no scans, and what nothing can."""
    for parts in disjuncts(where):
        if _Disjunct(source, scans).needs_scan(parts):
            return


class _Disjunct:
    def __init__(self, source: Source, scans: bool) -> None:
        self._source, self._scans = source, scans
        self._windowed = source.window is not None
        self._keys = {one.name: index for index, one in enumerate(source.schema.key)}
        self._seen: set[str] = set()
        self._scan = False

    def needs_scan(self, parts: list[ast.Expression]) -> bool:
        for part in parts:
            if isinstance(part, ast.Compare):
                self._compare(part)
            elif isinstance(part, ast.Like):
                self._like(part)
            else:
                self._only_by_scan(f"Unsupported expression in WHERE clause: {text(part)}")
        if self._scan:
            return True
        if not self._seen:
            self._only_by_scan(f"WHERE clause missing key column for disjunct: {text(_all_of(parts))}")
        elif len(self._seen) != len(self._keys):
            seen = ", ".join(quoted(name) for name in self._keys if name in self._seen)
            wanted = ", ".join(f"{quoted(one.name)} {one.type} KEY" for one in self._source.schema.key)
            self._only_by_scan(
                "Multi-column sources must specify every key in the WHERE clause. "
                f"Specified: [{seen}] Expected: [{wanted}]"
            )
        return self._scan

    def _only_by_scan(self, message: str) -> None:
        if not self._scans:
            raise invalid_where(message, self._windowed)
        self._scan = True

    def _compare(self, node: ast.Compare) -> None:
        column, other = node.right, node.left
        if not isinstance(column, ast.Column):
            column, other = node.left, node.right
        if not isinstance(column, ast.Column):
            self._only_by_scan("A comparison must directly reference a key column")
            return
        if any(isinstance(part, ast.Column) for part in ast.walk(other)):
            self._only_by_scan("A comparison must be between a key column and a resolvable expression")
            return
        if column.name in WINDOW_BOUNDS and self._windowed:
            if node.operator not in _BOUNDS:
                self._only_by_scan(f"Unsupported {quoted(column.name)} bounds: {node.operator}")
            return
        if column.name not in self._keys:
            return
        if node.operator in _NO_LOOKUP:
            shown = ", ".join(f"{quoted(one.name)} {one.type} KEY" for one in self._source.schema.key)
            self._only_by_scan(f"Bound on key columns '[{shown}]' must currently be '='")
        if column.name in self._seen and not self._scans:
            raise invalid_where(
                "A comparison condition on the key column cannot be combined with other comparisons such as "
                "an IN predicate",
                self._windowed,
            )
        self._seen.add(column.name)

    def _like(self, node: ast.Like) -> None:
        if not isinstance(node.value, ast.Column):
            self._only_by_scan("Like condition must be between strings")
            return
        column = self._source.schema.find(node.value.name)
        if column is not None and column.type.base is not Base.STRING:
            raise invalid_where(
                "The column type for Like condition must be VARCHAR. The column type is "
                f"{column.type.base.value}",
                self._windowed,
            )


def _all_of(parts: list[ast.Expression]) -> ast.Expression:
    found = parts[0]
    for part in parts[1:]:
        found = ast.Logical("AND", found, part)
    return found


def without_opaque_parts(node: ast.Expression) -> ast.Expression:
    """The condition with TRUE for the predicates whose operands are looked at only when it is compiled."""
    opaque = (ast.Between, ast.Like, ast.In, ast.IsNull, ast.Not)
    return ast.rewrite(node, lambda part: ast.Literal(True) if isinstance(part, opaque) else None)
