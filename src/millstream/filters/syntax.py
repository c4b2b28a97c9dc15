"""From text to nodes: a tokenizer and a parser by recursive descent, with a limit on length and depth."""

import difflib
import re
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

LONGEST = 8_192
DEEPEST = 60

ROOTS = ("value", "key", "headers", "timestamp", "partition", "offset", "topic")
FUNCTIONS = ("exists", "len", "lower", "upper", "text", "number", "ago", "time")
SYMBOLS = {"&&": "and", "||": "or", "!": "not", "=": "=="}
OPERATORS = frozenset({"and", "or", "not", "in", "contains", "startswith", "endswith", "matches"})
COMPARISONS = frozenset(
    {"==", "!=", "<", "<=", ">", ">=", "in", "contains", "startswith", "endswith", "matches"}
)
NEGATABLE = frozenset({"in", "contains", "startswith", "endswith", "matches"})
CONSTANTS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'", "/": "/", "b": "\b", "f": "\f"}

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>-?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?)
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
      | (?P<symbol>==|!=|<=|>=|&&|\|\||[<>=!()\[\].,])
    )""",
    re.VERBOSE | re.DOTALL,
)


class FilterError(ValueError):
    """The expression makes no sense; `position` is where."""

    def __init__(self, message: str, text: str, position: int) -> None:
        super().__init__(message)
        self.message = message
        self.text = text
        self.position = position

    def pointing(self) -> str:
        """The message, and the expression with a mark under the error."""
        if "\n" in self.text or len(self.text) > 200:
            return f"{self.message} (at character {self.position + 1})"
        return f"{self.message}\n  {self.text}\n  {' ' * self.position}^"


class Token(NamedTuple):
    type: str  # number, string, name, operator, symbol, end
    text: str
    value: Any
    at: int


@dataclass(frozen=True, slots=True)
class Literal:
    value: Any
    at: int


@dataclass(frozen=True, slots=True)
class Path:
    """`value.items[0]` is Path("value", ("items", 0))."""

    root: str
    steps: tuple[str | int, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Call:
    function: str
    argument: "Node"
    at: int


@dataclass(frozen=True, slots=True)
class Comparison:
    operator: str
    left: "Node"
    right: "Node"
    at: int


@dataclass(frozen=True, slots=True)
class Not:
    inner: "Node"


@dataclass(frozen=True, slots=True)
class Both:
    """`and` and `or` of two or more."""

    operator: str
    operands: tuple["Node", ...]


Node = Literal | Path | Call | Comparison | Not | Both


def parse(text: str) -> Node:
    if len(text) > LONGEST:
        raise FilterError(f"the expression is longer than {LONGEST} characters", text, LONGEST)
    return _Parser(text).whole()


def tokens(text: str) -> list[Token]:
    found = []
    at = 0
    end = len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            rest = text[at:]
            if rest[0] in "\"'":
                raise FilterError("this text has no closing quote", text, at)
            raise FilterError(f"'{rest[0]}' means nothing here", text, at)
        lexical_type = match.lastgroup or ""
        lexeme = match[lexical_type]
        start = match.start(lexical_type)
        if lexical_type == "number":
            found.append(Token(lexical_type, lexeme, _number(lexeme), start))
        elif lexical_type == "string":
            found.append(Token(lexical_type, lexeme, _unquoted(lexeme, text, start), start))
        elif lexical_type == "symbol":
            meant = SYMBOLS.get(lexeme, lexeme)
            found.append(
                Token(
                    "operator" if meant in OPERATORS or meant in COMPARISONS else "symbol", meant, None, start
                )
            )
        else:
            lower = lexeme.lower()
            is_operator = lower in OPERATORS and (not found or found[-1].text != ".")
            found.append(
                Token("operator" if is_operator else "name", lower if is_operator else lexeme, None, start)
            )
        at = match.end()
    found.append(Token("end", "", None, end))
    return found


def _number(lexeme: str) -> int | float:
    return float(lexeme) if set(lexeme) & set(".eE") else int(lexeme)


def _unquoted(lexeme: str, text: str, at: int) -> str:
    body = lexeme[1:-1]
    if "\\" not in body:
        return _without_halves(body)
    out = []
    position = 0
    while position < len(body):
        char = body[position]
        position += 1
        if char != "\\":
            out.append(char)
            continue
        follows = body[position]
        position += 1
        if follows == "u" and re.fullmatch("[0-9a-fA-F]{4}", body[position : position + 4]):
            out.append(chr(int(body[position : position + 4], 16)))
            position += 4
        elif follows in ESCAPES:
            out.append(ESCAPES[follows])
        else:
            raise FilterError(
                f"'\\{follows}' means nothing in text: write '\\\\{follows}'", text, at + position - 1
            )
    return _without_halves("".join(out))


def _without_halves(text: str) -> str:
    """Two halves of a character (\\ud83d\\ude00) become that character; a half alone is no text."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens(text)
        self._at = 0
        self._depth = 0

    def whole(self) -> Node:
        if self._now.type == "end":
            self._fail('the expression is empty: write something like value.status == "CRITICAL"')
        node = self._either()
        if self._now.type != "end":
            self._fail(f"'{self._now.text}' is not expected here")
        return node

    # --- grammar --------------------------------------------------------------------------------------------

    def _either(self) -> Node:
        return self._joined("or", self._all)

    def _all(self) -> Node:
        return self._joined("and", self._negated)

    def _joined(self, operator: str, operand: Any) -> Node:
        operands = [operand()]
        while self._take("operator", operator):
            operands.append(operand())
        return operands[0] if len(operands) == 1 else Both(operator, tuple(operands))

    def _negated(self) -> Node:
        if not self._take("operator", "not"):
            return self._comparison()
        self._deeper()
        inner = self._negated()
        self._depth -= 1
        return Not(inner)

    def _comparison(self) -> Node:
        left = self._operand()
        token = self._now
        negated = False
        if token.text == "not" and token.type == "operator" and self._tokens[self._at + 1].text in NEGATABLE:
            negated = True
            self._at += 1
            token = self._now
        if token.type != "operator" or token.text not in COMPARISONS:
            return left
        self._at += 1
        node = Comparison(token.text, left, self._operand(), token.at)
        after = self._now
        if after.type == "operator" and after.text in COMPARISONS:
            self._fail("one comparison at a time: join them by 'and'")
        return Not(node) if negated else node

    def _operand(self) -> Node:
        token = self._now
        self._at += 1
        if token.type in ("number", "string"):
            return Literal(token.value, token.at)
        if token.type == "symbol" and token.text == "(":
            self._deeper()
            inner = self._either()
            self._depth -= 1
            self._expect(")")
            return inner
        if token.type == "symbol" and token.text == "[":
            return self._list(token.at)
        if token.type == "name":
            if token.text in CONSTANTS:
                return Literal(CONSTANTS[token.text], token.at)
            if self._now.text == "(" and self._now.type == "symbol":
                return self._call(token)
            return self._path(token)
        self._at -= 1
        if token.type == "end":
            self._fail("the expression ends too soon")
        self._fail(f"'{token.text}' is not expected here")

    def _list(self, at: int) -> Literal:
        items: list[Any] = []
        while not self._take("symbol", "]"):
            if items:
                self._expect(",")
            item = self._operand()
            if not isinstance(item, Literal) or isinstance(item.value, list):
                raise FilterError("a list holds numbers and texts", self._text, at)
            items.append(item.value)
        return Literal(items, at)

    def _call(self, name: Token) -> Call:
        if name.text not in FUNCTIONS:
            self._guess(name, FUNCTIONS, "function")
        self._expect("(")
        self._deeper()
        argument = self._either()
        self._depth -= 1
        self._expect(")")
        return Call(name.text, argument, name.at)

    def _path(self, root: Token) -> Path:
        if root.text not in ROOTS:
            self._guess(root, ROOTS, "field")
        steps: list[str | int] = []
        while True:
            if self._take("symbol", "."):
                token = self._now
                if token.type not in ("name", "operator") or not token.text.isidentifier():
                    self._fail('a name is expected after the dot; write ["odd name"] for other names')
                steps.append(self._text[token.at : token.at + len(token.text)])
                self._at += 1
            elif self._take("symbol", "["):
                token = self._now
                if token.type not in ("string", "number") or isinstance(token.value, float):
                    self._fail(
                        'a name in quotes or a whole number is expected: value["name"], value.items[0]'
                    )
                steps.append(token.value)
                self._at += 1
                self._expect("]")
            else:
                break
        return self._checked(Path(root.text, tuple(steps), root.at))

    def _checked(self, path: Path) -> Path:
        if path.root == "headers" and (len(path.steps) != 1 or not isinstance(path.steps[0], str)):
            raise FilterError('name one header: headers.source or headers["trace-id"]', self._text, path.at)
        if path.steps and path.root not in ("value", "key", "headers"):
            raise FilterError(f"there is nothing inside {path.root}", self._text, path.at)
        return path

    # --- tokens ---------------------------------------------------------------------------------------------

    @property
    def _now(self) -> Token:
        return self._tokens[self._at]

    def _take(self, lexical_type: str, text: str) -> bool:
        if self._now.type == lexical_type and self._now.text == text:
            self._at += 1
            return True
        return False

    def _expect(self, symbol: str) -> None:
        if not self._take("symbol", symbol):
            found = f"'{self._now.text}'" if self._now.type != "end" else "the end"
            self._fail(f"'{symbol}' is expected here, not {found}")

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > DEEPEST:
            self._fail(f"more than {DEEPEST} levels of brackets")

    def _guess(self, token: Token, known: tuple[str, ...], what: str) -> NoReturn:
        close = difflib.get_close_matches(token.text, known, 1)
        hint = f"did you mean '{close[0]}'?" if close else f"there are {', '.join(known)}"
        if what == "field" and not close:
            hint = f"fields of the value are written value.{token.text}; " + hint
        raise FilterError(f"there is no {what} '{token.text}': {hint}", self._text, token.at)

    def _fail(self, message: str) -> NoReturn:
        raise FilterError(message, self._text, self._now.at)
