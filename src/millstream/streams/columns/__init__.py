"""Records in columns: what runs on whole blocks of records instead of one at a time.

    blocks       records of a range as Arrow arrays, and what travels from operator to operator
    plan         from the nodes behind a source to functions of blocks, if all of them can
    operators    each operator on blocks
    loops        what numba compiles

It is another way to the same results, record for record: which operator can go it, and when, is in `plan`.
The operators themselves know nothing of it, and nothing here is imported before a task gets a block.
"""

import sys

_LOOPS = "millstream.streams.columns.loops"


def can_load() -> bool:
    """Whether tasks may take blocks. Not while another process of this machine compiles the loops for the
    first time: records go one by one until then, instead of waiting."""
    if _LOOPS in sys.modules:
        return True
    from millstream.spark.precompile import is_compiling

    return not is_compiling(later=True)
