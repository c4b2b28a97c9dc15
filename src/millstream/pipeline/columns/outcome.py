"""What every way of decoding answers."""

from typing import NamedTuple

import pyarrow as pa


class Decoded(NamedTuple):
    """An array with a row per body, and the reasons for those rows that could not be decoded (they are null)."""

    array: pa.Array
    bad: dict[int, str]
