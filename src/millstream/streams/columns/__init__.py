"""Records in columns: what runs on whole blocks of records instead of one at a time.

    blocks       records of a range as Arrow arrays, and what travels from operator to operator
    plan         from the nodes behind a source to functions of blocks, if all of them can
    operators    each operator on blocks
    loops        what numba compiles

It is another way to the same results, record for record: which operator can go it, and when, is in `plan`.
The operators themselves know nothing of it, and nothing here is imported before a task gets a block.
"""
