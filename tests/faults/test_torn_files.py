"""What a crash, a bad disk or a hand leaves in the files: the log is cut at the first bad batch, says so, and
goes on."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from millstream.testing import Broker

from .test_kill import WAIT, new_topic, read_all

COUNT = 200


def write(broker: Broker, first: int, count: int) -> list[int]:
    """One batch per record; returns the offsets."""
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0, "batch.num.messages": 1}
    )
    offsets: list[int] = []
    for number in range(first, first + count):
        producer.produce(
            "log", b"%d" % number * 20, partition=0, on_delivery=lambda _, m: offsets.append(m.offset())
        )
    producer.flush(WAIT)
    return offsets


def active_segment(folder: Path) -> Path:
    return sorted((folder / "log-0").glob("*.log"))[-1]


def append_junk(segment: Path) -> None:
    with segment.open("ab") as file:
        file.write(os.urandom(5000))


def append_zeros(segment: Path) -> None:
    with segment.open("ab") as file:
        file.write(bytes(100_000))


def append_half_a_batch(segment: Path) -> None:
    content = segment.read_bytes()
    with segment.open("ab") as file:
        file.write(content[: 61 + 10])


def append_a_batch_out_of_place(segment: Path) -> None:
    """A whole, right batch, but with an offset from the start of the log."""
    content = segment.read_bytes()
    size = 12 + int.from_bytes(content[8:12], "big")
    with segment.open("ab") as file:
        file.write(content[:size])


def remove_indexes(segment: Path) -> None:
    segment.with_suffix(".index").unlink(missing_ok=True)
    segment.with_suffix(".timeindex").unlink(missing_ok=True)


def spoil_indexes(segment: Path) -> None:
    for suffix in (".index", ".timeindex"):
        segment.with_suffix(suffix).write_bytes(os.urandom(4096 + 7))


@pytest.mark.parametrize(
    "damage",
    [
        append_junk,
        append_zeros,
        append_half_a_batch,
        append_a_batch_out_of_place,
        remove_indexes,
        spoil_indexes,
    ],
)
def test_damage_after_the_end_costs_nothing(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    with Broker(data_dir=tmp_path) as broker:
        new_topic(broker, "log")
        assert write(broker, 0, COUNT) == list(range(COUNT))
        broker.kill()
        size = active_segment(tmp_path).stat().st_size
        damage(active_segment(tmp_path))
        broker.start()
        assert [int(v[: len(v) // 20]) for v in read_all(broker, "log")] == list(range(COUNT))
        assert active_segment(tmp_path).stat().st_size == size
        assert write(broker, COUNT, 10) == list(range(COUNT, COUNT + 10))
        assert len(read_all(broker, "log")) == COUNT + 10


def test_a_cut_says_so_in_the_log(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        new_topic(broker, "log")
        write(broker, 0, 10)
        broker.kill()
        append_junk(active_segment(tmp_path))
        before = len(broker.log)
        broker.start()
        lines = [line for line in broker.log[before:].splitlines() if "log-0" in line and "cut" in line]
        assert len(lines) == 1, broker.log[before:]


def test_a_torn_last_batch_goes_whole(tmp_path: Path) -> None:
    """Half of the last batch is missing, as after a power cut: everything before it stays."""
    with Broker(data_dir=tmp_path) as broker:
        new_topic(broker, "log")
        write(broker, 0, COUNT)
        broker.kill()
        segment = active_segment(tmp_path)
        os.truncate(segment, segment.stat().st_size - 7)
        broker.start()
        assert len(read_all(broker, "log")) == COUNT - 1
        assert write(broker, 0, 1) == [COUNT - 1]


def test_a_flipped_bit_in_the_active_segment_cuts_the_log_there(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        new_topic(broker, "log")
        write(broker, 0, COUNT)
        broker.kill()
        segment = active_segment(tmp_path)
        content = bytearray(segment.read_bytes())
        content[len(content) // 2] ^= 0x10
        segment.write_bytes(content)
        broker.start()
        left = len(read_all(broker, "log"))
        assert 0 < left < COUNT
        assert write(broker, 0, 1) == [left]


def test_many_small_segments_after_a_crash(tmp_path: Path) -> None:
    with Broker(
        {"log.segment.bytes": 1_048_576, "log.index.interval.bytes": 100}, data_dir=tmp_path
    ) as broker:
        new_topic(broker, "log", segment_bytes="1048576")
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "batch.size": 50_000})
        for number in range(4000):
            producer.produce("log", b"%04d" % number * 250, partition=0)
        producer.flush(WAIT)
        assert len(list((tmp_path / "log-0").glob("*.log"))) > 2
        broker.kill()
        append_junk(active_segment(tmp_path))
        broker.start()
        assert [int(value[:4]) for value in read_all(broker, "log")] == list(range(4000))


def test_a_folder_from_a_newer_version_is_refused(tmp_path: Path) -> None:
    from millstream.testing import BrokerFailed

    with Broker(data_dir=tmp_path) as broker:
        broker.stop()
        properties = tmp_path / "meta.properties"
        properties.write_text(properties.read_text().replace("version=1", "version=99"))
        with pytest.raises(BrokerFailed, match="version"):
            broker.start()
        properties.write_text(properties.read_text().replace("version=99", "version=1"))
        broker.start()
