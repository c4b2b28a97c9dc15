"""From nodes to closures: each takes a View of a record and returns a value.

Comparisons with a literal, which is what people write, get closures of their own: no test that can be made
once is made per record.
"""

import operator
from collections.abc import Callable
from typing import Any

from millstream.filters.syntax import Both, Call, Comparison, FilterError, Literal, Node, Not, Path, parse
from millstream.filters.times import BadTime, parse_duration, parse_time
from millstream.filters.view import Decode, View, as_text, plain, read_json, to_number
from millstream.patterns import InvalidPattern, compile_pattern

Getter = Callable[[View], Any]
Test = Callable[[View], bool]

ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
NUMBERS = (int, float)


class Filter:
    """A compiled expression. `uses` are the roots it asks about: who decodes can skip the rest."""

    __slots__ = ("_read_key", "_read_value", "_test", "text", "uses")

    def __init__(
        self, text: str, test: Test, uses: frozenset[str], read_key: Decode, read_value: Decode
    ) -> None:
        self.text = text
        self.uses = uses
        self._test = test
        self._read_key = read_key
        self._read_value = read_value

    def __call__(self, record: Any) -> bool:
        return self._test(View(record, self._read_key, self._read_value))

    def __repr__(self) -> str:
        return f"Filter({self.text!r})"


def compile_filter(
    text: str, *, read_value: Decode = read_json, read_key: Decode = read_json, now_ms: int | None = None
) -> Filter:
    """`read_value` and `read_key` make an object of the bytes when something inside it is needed; where
    they raise ValueError there is nothing inside. FilterError if the expression makes no sense."""
    node = parse(text)
    compiler = _Compiler(text, now_ms)
    return Filter(text, compiler.test(node), frozenset(compiler.uses), read_key, read_value)


class _Compiler:
    def __init__(self, text: str, now_ms: int | None) -> None:
        self._text = text
        self._now_ms = now_ms
        self.uses: set[str] = set()

    # --- true or false --------------------------------------------------------------------------------------

    def test(self, node: Node) -> Test:
        if isinstance(node, Both):
            return _joined(node.operator, [self.test(operand) for operand in node.operands])
        if isinstance(node, Not):
            inner = self.test(node.inner)
            return lambda view: not inner(view)
        if isinstance(node, Comparison):
            return self._comparison(node)
        get = self.value(node)
        return lambda view: bool(get(view))

    def _comparison(self, node: Comparison) -> Test:
        left, right = self._timed(node.left, node.right), self._timed(node.right, node.left)
        if isinstance(left, Literal) and not isinstance(right, Literal) and node.operator in MIRRORED:
            left, right = right, left
            node = Comparison(MIRRORED[node.operator], left, right, node.at)
        get = self.value(left)
        if node.operator == "matches":
            return self._regular_expression(get, right, node.at)
        if isinstance(right, Literal):
            if node.operator == "contains" and isinstance(left, Path) and isinstance(right.value, str):
                raw = _raw_search(left, right.value)
                if raw is not None:
                    return raw
            return _with_literal(node.operator, get, right.value)
        other = self.value(right)
        compare = GENERAL[node.operator]
        return lambda view: compare(get(view), other(view))

    def _regular_expression(self, get: Getter, right: Node, at: int) -> Test:
        if not isinstance(right, Literal) or not isinstance(right.value, str):
            raise FilterError(
                'a regular expression in quotes is expected: key matches "^eu-[0-9]+$"', self._text, at
            )
        try:
            search = compile_pattern(right.value).search
        except InvalidPattern as error:
            raise FilterError(f"not a regular expression: {error}", self._text, right.at) from None

        def test(view: View) -> bool:
            found = get(view)
            if type(found) is not str:
                if found is None:
                    return False
                found = as_text(found)
            try:
                return search(found) is not None
            except UnicodeEncodeError:  # half a character, which JSON can hold
                return search(found.encode("utf-8", "replace").decode()) is not None

        return test

    def _timed(self, node: Node, beside: Node) -> Node:
        """A text beside `timestamp` is a time."""
        if not (isinstance(beside, Path) and beside.root == "timestamp" and isinstance(node, Literal)):
            return node
        if isinstance(node.value, str):
            return Literal(self._time(node.value, node.at), node.at)
        return node

    def _time(self, text: str, at: int) -> int:
        try:
            return parse_time(text, self._now_ms)
        except (BadTime, OverflowError) as error:
            raise FilterError(str(error), self._text, at) from None

    # --- values ---------------------------------------------------------------------------------------------

    def value(self, node: Node) -> Getter:
        if isinstance(node, Literal):
            constant = node.value
            return lambda view: constant
        if isinstance(node, Path):
            self.uses.add(node.root)
            return _path(node)
        if isinstance(node, Call):
            return self._call(node)
        return self.test(node)

    def _call(self, node: Call) -> Getter:
        if node.function in ("ago", "time"):
            if not isinstance(node.argument, Literal) or not isinstance(node.argument.value, str):
                raise FilterError(f"{node.function} takes a text: {node.function}(...)", self._text, node.at)
            given = node.argument
            if node.function == "time":
                moment = self._time(given.value, given.at)
            else:
                try:
                    moment = parse_time("now", self._now_ms) - parse_duration(given.value)
                except BadTime as error:
                    raise FilterError(str(error), self._text, given.at) from None
            return lambda view: moment
        if node.function == "exists" and not isinstance(node.argument, Path):
            raise FilterError("exists takes a field: exists(value.status)", self._text, node.at)
        get = self.value(node.argument)
        act = FUNCTIONS[node.function]
        return lambda view: act(get(view))


MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _joined(operator: str, tests: list[Test]) -> Test:
    if len(tests) == 2:
        first, second = tests
        if operator == "and":
            return lambda view: first(view) and second(view)
        return lambda view: first(view) or second(view)
    every = tuple(tests)
    if operator == "and":
        return lambda view: _all(every, view)
    return lambda view: _any(every, view)


def _all(tests: tuple[Test, ...], view: View) -> bool:
    for test in tests:  # noqa: SIM110 - half the time of all()
        if not test(view):
            return False
    return True


def _any(tests: tuple[Test, ...], view: View) -> bool:
    for test in tests:  # noqa: SIM110
        if test(view):
            return True
    return False


# --- paths --------------------------------------------------------------------------------------------------


def _path(node: Path) -> Getter:
    steps = node.steps
    if node.root == "headers":
        name = str(steps[0])
        return lambda view: view.header(name)
    if node.root == "value":
        return _inside(View.value_tree, steps) if steps else View.value_text
    if node.root == "key":
        return _inside(View.key_tree, steps) if steps else View.key_text
    return operator.attrgetter(f"record.{node.root}")


def _inside(tree: Getter, steps: tuple[str | int, ...]) -> Getter:
    if len(steps) == 1 and isinstance(steps[0], str):
        name = steps[0]

        def one(view: View) -> Any:
            found = tree(view)
            return found.get(name) if type(found) is dict else None

        return one

    def several(view: View) -> Any:
        found = tree(view)
        for step in steps:
            if type(found) is dict:
                found = found.get(step)
            elif type(found) is list and type(step) is int and -len(found) <= step < len(found):
                found = found[step]
            else:
                return None
        return found

    return several


def _raw_search(path: Path, needle: str) -> Test | None:
    """Text anywhere in a whole key or value: searched for in the bytes as they are, where they are bytes."""
    if path.steps or path.root not in ("key", "value"):
        return None
    wanted = needle.encode("utf-8", "surrogatepass")
    fetch = operator.attrgetter(path.root)
    text = View.value_text if path.root == "value" else View.key_text

    def test(view: View) -> bool:
        raw = fetch(view.record)
        if type(raw) is bytes:
            return wanted in raw
        return raw is not None and needle in (text(view) or "")

    return test


# --- comparisons --------------------------------------------------------------------------------------------


def equal(left: Any, right: Any) -> bool:
    if type(left) is type(right):
        return bool(left == right)
    left, right = plain(left), plain(right)
    if isinstance(left, bool) or isinstance(right, bool) or left is None or right is None:
        return left is right
    if isinstance(left, str) and isinstance(right, NUMBERS):
        left = to_number(left)
    elif isinstance(right, str) and isinstance(left, NUMBERS):
        right = to_number(right)
    return bool(left == right)


def ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def test(left: Any, right: Any) -> bool:
        left, right = plain(left), plain(right)
        if isinstance(left, bool) or isinstance(right, bool):
            return False
        if isinstance(left, NUMBERS):
            if isinstance(right, str):
                right = to_number(right)
            return isinstance(right, NUMBERS) and compare(left, right)
        if isinstance(left, str):
            if isinstance(right, str):
                return compare(left, right)
            left = to_number(left)
            return left is not None and isinstance(right, NUMBERS) and compare(left, right)
        return False

    return test


def contains(left: Any, right: Any) -> bool:
    if isinstance(left, list | tuple):
        return any(equal(item, right) for item in left)
    if isinstance(left, dict):
        return isinstance(right, str) and right in left
    return left is not None and right is not None and as_text(right) in as_text(left)


def starts(left: Any, right: Any) -> bool:
    return left is not None and right is not None and as_text(left).startswith(as_text(right))


def ends(left: Any, right: Any) -> bool:
    return left is not None and right is not None and as_text(left).endswith(as_text(right))


GENERAL: dict[str, Callable[[Any, Any], bool]] = {
    "==": equal,
    "!=": lambda left, right: not equal(left, right),
    **{operator: ordered(compare) for operator, compare in ORDER.items()},
    "in": lambda left, right: contains(right, left),
    "contains": contains,
    "startswith": starts,
    "endswith": ends,
}


def _with_literal(operator: str, get: Getter, literal: Any) -> Test:
    literal_type = type(literal)
    general = GENERAL[operator]
    if operator in ("==", "!="):
        wanted = operator == "=="

        def same(view: View) -> bool:
            found = get(view)
            return ((found == literal) if type(found) is literal_type else equal(found, literal)) is wanted

        return same
    if operator in ORDER and literal_type in NUMBERS:
        compare = ORDER[operator]

        def before(view: View) -> bool:
            found = get(view)
            known = type(found)
            return compare(found, literal) if known is int or known is float else general(found, literal)

        return before
    if operator == "in" and literal_type is list and all(type(item) is str for item in literal):
        members = frozenset(literal)

        def member(view: View) -> bool:
            found = get(view)
            return found in members if type(found) is str else general(found, literal)

        return member
    return lambda view: general(get(view), literal)


def _length(found: Any) -> int | None:
    if isinstance(found, str | bytes | list | tuple | dict):
        return len(found)
    return None


def _number_of(found: Any) -> int | float | None:
    found = plain(found)
    if isinstance(found, str):
        return to_number(found)
    return found if isinstance(found, NUMBERS) and not isinstance(found, bool) else None


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "exists": lambda found: found is not None,
    "len": _length,
    "lower": lambda found: None if found is None else as_text(found).lower(),
    "upper": lambda found: None if found is None else as_text(found).upper(),
    "text": lambda found: None if found is None else as_text(found),
    "number": _number_of,
}
