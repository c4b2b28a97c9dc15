"""The text of a statement as it may be shown: passwords in CREATE CONNECTOR are not.

As in ksqlDB, the value of every property is hidden but that of `connector.class`, for only the connector
knows which of them are secrets. It is done on the words of the text, not on the parsed statement: one that
cannot be parsed is quoted in an error, too.
"""

from __future__ import annotations

from millstream.sql.errors import SqlSyntaxError
from millstream.sql.lexer import Token, tokens

SHOWN = "connector.class"
HIDDEN = "'[string]'"


def masked(text: str) -> str:
    if "connector" not in text.lower():
        return text
    try:
        words, _ = tokens(text)
    except SqlSyntaxError:  # a string that does not end, for example
        return text[: text.index("'")] + HIDDEN if "'" in text else text
    if not any(_creates_connector(words, at) for at in range(len(words))):
        return text
    shown, end = [], 0
    for at, word in enumerate(words):
        if word.kind == "string" and not _is_key(words, at) and not _is_class(words, at):
            shown += [text[end : word.start], HIDDEN]
            end = word.end
    return "".join((*shown, text[end:]))


def _creates_connector(words: list[Token], at: int) -> bool:
    """CREATE [SOURCE | SINK] CONNECTOR."""
    return words[at].value == "CREATE" and any(
        word.kind == "word" and word.value == "CONNECTOR" for word in words[at + 1 : at + 3]
    )


def _is_key(words: list[Token], at: int) -> bool:
    return at + 1 < len(words) and words[at + 1].text == "="


def _is_class(words: list[Token], at: int) -> bool:
    return at > 1 and words[at - 1].text == "=" and words[at - 2].value.lower() == SHOWN
