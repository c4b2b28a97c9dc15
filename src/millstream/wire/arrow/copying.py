"""Copying bytes in compiled loops.

A loop over bytes is up to ten times as slow, and an assignment of slices as well: numba must assume that an
index is negative and that the arrays overlap, and then LLVM does not join the bytes.
"""

from typing import Any

from numba.core import cgutils, types
from numba.extending import intrinsic

_cgutils: Any = cgutils
_types: Any = types


def _memcpy(_context: Any, out: Any, at: Any, data: Any, start: Any, size: Any) -> Any:
    """memcpy of data[start:start + size] to out[at:]."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        target = context.make_array(signature.args[0])(context, builder, values[0])
        origin = context.make_array(signature.args[2])(context, builder, values[2])
        _cgutils.raw_memcpy(
            builder,
            builder.gep(target.data, [values[1]]),
            builder.gep(origin.data, [values[3]]),
            values[4],
            1,
        )
        return context.get_dummy_value()

    return _types.void(out, at, data, start, size), generate


copy_bytes: Any = intrinsic(_memcpy)
