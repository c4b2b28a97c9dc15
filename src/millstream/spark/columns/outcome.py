"""What every way of decoding answers, and how the one bad row of a batch is found."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa


class Decoded(NamedTuple):
    """An array with a row per body, and the reasons for those rows that could not be decoded (they are
    null)."""

    array: pa.Array
    bad: dict[int, str]


def by_halves(
    rows: Sequence[Any], make: Callable[[Any], pa.Array], arrow_type: pa.DataType, bad: dict[int, str]
) -> pa.Array:
    """`make(rows)`. Where that raises, halves are tried, and halves of these: only rows that fail alone are
    bad."""

    def made(first: int, end: int) -> list[pa.Array]:
        try:
            return [make(rows[first:end])]
        except Exception as error:  # whatever a value makes the libraries raise
            if end - first < 2:
                bad[first] = reason_of(error)
                return [pa.nulls(end - first, arrow_type)]
            middle = (first + end) // 2
            return [*made(first, middle), *made(middle, end)]

    parts = made(0, len(rows))
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


def reason_of(error: Exception) -> str:
    """One line; with the error's name where its text alone would not be understood."""
    text = " ".join(str(error).split())
    return text if text and isinstance(error, ValueError) else f"{type(error).__name__}: {text}".rstrip(": ")
