"""What is wrong with a produced batch, where it does not take a log to see it."""

from __future__ import annotations

import pytest

from millstream.settings.log_config import LogConfig
from millstream.storage.validate import check_times
from millstream.wire.errors import ErrorCode, RecordsRefused
from millstream.wire.records import Record, encode_batch

from .batches import NOW


def times(*of_records: int) -> memoryview:
    return memoryview(encode_batch([Record(0, when, b"k", b"v") for when in of_records]))


def test_only_a_missing_timestamp_is_never_too_old() -> None:
    config = LogConfig(message_timestamp_before_max_ms=1000)
    for good in (times(-1), times(NOW - 1000), times(NOW, -1)):
        assert check_times(good, config, NOW) is good
    for bad, which in (
        (times(-2), (0,)),
        (times(0), (0,)),
        (times(NOW - 1001, NOW), (0,)),
        (times(-5, -1, 3, NOW), (0, 2)),
    ):
        with pytest.raises(RecordsRefused) as raised:
            check_times(bad, config, NOW)
        assert raised.value.code is ErrorCode.invalid_timestamp
        assert tuple(index for index, _ in raised.value.records) == which
        assert f"within [{NOW - 1000}, " in raised.value.records[0][1]
    assert check_times(times(-2, 5), LogConfig(), NOW)
