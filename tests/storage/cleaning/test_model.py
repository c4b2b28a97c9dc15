"""Random histories of a compacted log against a model: writes, transactions, codecs, cleaning, restarts,
crashes.

`CLEANING_EXAMPLES=5000 pytest tests/storage/cleaning/test_model.py` looks harder.
"""

from __future__ import annotations

import os
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millstream.storage.cleaning import compacting, key_learner

from .helpers import compacted
from .history import IDEMPOTENT, TRANSACTIONAL, History

KEYS = [b"a", b"b", b"c", b"d", b"e", b"f", b"", b"long-" + b"x" * 100]
PAIRS = st.lists(
    st.tuples(
        st.sampled_from(KEYS),
        st.sampled_from([None, None, b"", b"small", b"v" * 120]),
        st.sampled_from([0, 1, 30, -5, 7]),
    ),
    min_size=1,
    max_size=4,
)
CODECS = st.sampled_from([0, 0, 0, 1, 2, 3, 4])
PRODUCERS = st.sampled_from([-1] * 6 + [IDEMPOTENT, IDEMPOTENT + 1, *range(TRANSACTIONAL, TRANSACTIONAL + 3)])
PUT = st.tuples(st.just("put"), PAIRS, CODECS, PRODUCERS)
# Most logs have none of the limits, so they are given here: bytes of a chunk and of the marks, chunks and
# batches whose positions are scanned.
LIMITS = st.sampled_from(
    [
        (1, compacting.MARK_BYTES, 1000, 1000),
        (1, 7, 1000, 1000),
        (1 << 16, 1 << 10, 1000, 1000),
        (1, 50, 3, 5),
    ]
)
ONE_BY_ONE = st.tuples(
    st.just("one_by_one"), st.lists(PAIRS.map(lambda pairs: pairs[:1]), min_size=5, max_size=15)
)
END = st.tuples(st.just("end"), st.integers(0, 2), st.booleans())
ROLL = st.just(("roll",))
WAIT = st.tuples(st.just("wait"), st.sampled_from([1, 200, 20_000]))
CLEAN = st.tuples(st.just("clean"), st.sampled_from([1000, 3, 3, 5]))
CRASH = st.tuples(st.just("crash_while_cleaning"), st.integers(0, 40))
REOPEN = st.tuples(st.just("reopen"), st.booleans())
STEPS = st.one_of(PUT, PUT, PUT, PUT, ONE_BY_ONE, END, END, ROLL, WAIT, CLEAN, CLEAN, CRASH, REOPEN)


@settings(
    max_examples=int(os.environ.get("CLEANING_EXAMPLES", "100")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
@given(
    steps=st.lists(STEPS, min_size=25, max_size=90),
    append_time=st.booleans(),
    retention=st.sampled_from([0, 100, 10_000]),
    limits=LIMITS,
)
@pytest.mark.timeout(3600)
def test_a_log_is_what_the_model_says(
    steps: list[tuple[Any, ...]], append_time: bool, retention: int, limits: tuple[int, int, int, int]
) -> None:
    config = compacted(
        delete_retention_ms=retention,
        message_timestamp_type="LogAppendTime" if append_time else "CreateTime",
    )
    history = History(config)
    chunk, marks, chunks, single = limits
    try:
        with (
            mock.patch.object(compacting, "SMALLEST_BUFFER", chunk),
            mock.patch.object(compacting, "MARK_BYTES", marks),
            mock.patch.object(key_learner, "MAX_SCANNED_CHUNKS", chunks),
            mock.patch.object(key_learner, "MAX_SCANNED_BATCHES", single),
        ):
            run(history, steps)
    finally:
        history.close()


def run(history: History, steps: list[tuple[Any, ...]]) -> None:
    for name, *arguments in steps:
        getattr(history, name)(*arguments)
    for number in sorted(history.open_transactions):
        history.end(number, True)
    history.roll()
    history.clean(1000)
    history.check()
