"""Compaction in a running broker: while clients read and write, across restarts and kills, and when it cannot
work."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from millstream.testing import Broker
from millstream.wire.records import Record, encode_batch, iter_batches, iter_records
from tests.support.waiting import wait_until

from .conftest import Wire
from .test_server import free_port, get

MB = 1 << 20
RECORDS = 40  # in a batch
VALUE = b"v" * 2000
SETTINGS = {"log.cleaner.backoff.ms": 50, "log.segment.delete.delay.ms": 0, "log.initial.task.delay.ms": 10}


def value(number: int) -> bytes:
    return b"%d:" % number + VALUE


def write(wire: Wire, topic: str, batches: int, keys: int, first: int = 0) -> int:
    """Batches of records whose value tells their offset; the next offset."""
    offset = first
    now = int(time.time() * 1000)
    for _ in range(batches):
        rows = [
            Record(0, now, b"key-%d" % (number % keys), value(number))
            for number in range(offset, offset + RECORDS)
        ]
        answer = wire.ask(
            "produce",
            up_to=12,
            transactional_id=None,
            acks=-1,
            timeout=5000,
            topic_data=[
                {"name": topic, "partition_data": [{"index": 0, "records": bytes(encode_batch(rows))}]}
            ],
        )
        part = answer.responses[0].partition_responses[0]
        assert part.error_code == 0 and part.base_offset == offset
        offset += RECORDS
    return offset


def read(wire: Wire, topic: str, offset: int = 0) -> Iterator[Record]:
    """From an offset to the end, as a consumer does it. Every fetch must get further."""
    while True:
        part = wire.fetch({topic: {0: offset}}).responses[0].partitions[0]
        assert part.error_code == 0
        if not part.records:
            return
        before = offset
        for header, batch in iter_batches(part.records):
            for record in iter_records(batch):
                if record.offset >= offset:
                    yield record
            offset = header.next_offset
        assert offset > before


def log_files(broker: Broker, topic: str) -> list[Path]:
    return sorted((broker.data_dir / f"{topic}-0").glob("*.log"))


def log_size(broker: Broker, topic: str) -> int:
    total = 0
    for path in log_files(broker, topic):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            pass
    return total


def wait_for(broker: Broker, condition: Callable[[], bool]) -> None:
    wait_until(condition, lambda: broker.log[-4000:])


def cleaned_to(broker: Broker, topic: str) -> int:
    path = broker.data_dir / "cleaner-offset-checkpoint"
    if path.exists():
        for line in path.read_text().splitlines()[2:]:
            name, partition, offset = line.split()
            if (name, partition) == (topic, "0"):
                return int(offset)
    return 0


def compacted(wire: Wire, **more: str) -> str:
    settings = {"cleanup_policy": "compact", "segment_bytes": str(MB), "min_cleanable_dirty_ratio": "0.01"}
    return wire.create(**{**settings, **more})


def check(wire: Wire, topic: str, end: int, keys: int) -> list[int]:
    """Whatever was cleaned, the last value of every key is there, and nothing but what was written."""
    offsets = []
    last: dict[bytes | None, int] = {}
    for record in read(wire, topic):
        assert not offsets or record.offset > offsets[-1]
        assert record.key == b"key-%d" % (record.offset % keys)
        assert record.value == value(record.offset)
        offsets.append(record.offset)
        last[record.key] = record.offset
    assert set(last.values()) == set(range(end - keys, end))
    return offsets


def children(pid: int) -> list[int]:
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid and fields[0] != "Z":
                found.append(int(entry))
    return found


def test_a_compacted_topic_shrinks_and_a_restart_changes_nothing(connect: Callable[[Broker], Wire]) -> None:
    port = free_port()
    with Broker({**SETTINGS, "millstream.metrics.listener": f"127.0.0.1:{port}"}) as broker:
        wire = connect(broker)
        topic = compacted(wire)
        end = write(wire, topic, 80, 100)  # 6.5 MB
        wait_for(broker, lambda: log_size(broker, topic) < 2 * MB)
        active = int(log_files(broker, topic)[-1].stem)
        wait_for(broker, lambda: cleaned_to(broker, topic) == active)
        offsets = check(wire, topic, end, 100)
        assert len([offset for offset in offsets if offset < active]) <= 200
        page = get(f"http://127.0.0.1:{port}/metrics")[1]
        metrics = dict(line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
        assert float(metrics["millstream_cleaner_cleanings_total"]) >= 1
        assert float(metrics["millstream_cleaner_read_bytes_total"]) > 5 * MB
        assert 0 < float(metrics["kafka_log_logcleaner_max_buffer_utilization_percent"]) <= 90
        assert [float(v) for k, v in metrics.items() if "uncleanable_partitions_count" in k] == [0]
        wait_for(broker, lambda: not children(broker.pid))  # nothing to do, no second process
        broker.restart()
        wire = connect(broker)
        assert check(wire, topic, end, 100) == offsets
        assert cleaned_to(broker, topic) == active
        for offset in range(0, end, 97):
            first = next(read(wire, topic, offset))
            assert first.offset == next(known for known in offsets if known >= offset)


def test_clients_read_and_write_while_it_works(connect: Callable[[Broker], Wire]) -> None:
    settings = {**SETTINGS, "log.cleaner.io.max.bytes.per.second": 20 * MB}
    with Broker(settings) as broker:
        wire, other = connect(broker), connect(broker)
        topic = compacted(wire)
        end = write(wire, topic, 60, 50)
        problems: list[BaseException] = []
        stop = threading.Event()
        rounds = 0

        def read_again_and_again() -> None:
            nonlocal rounds
            try:
                while not stop.is_set():
                    before = -1
                    for record in read(other, topic):
                        assert record.offset > before
                        before = record.offset
                        assert record.value == value(record.offset)
                    rounds += 1
            except BaseException as problem:
                problems.append(problem)

        reader = threading.Thread(target=read_again_and_again)
        reader.start()
        for _ in range(20):
            end = write(wire, topic, 5, 50, end)
            # The cleaner gets its turns between the writes.
            time.sleep(0.05)
        wait_for(broker, lambda: log_size(broker, topic) < 3 * MB)
        stop.set()
        reader.join()
        assert not problems
        assert rounds > 1
        check(wire, topic, end, 50)


def test_killed_again_and_again(connect: Callable[[Broker], Wire]) -> None:
    """kill -9 in the middle of cleaning: the child ends too, and nothing is missing afterwards."""
    settings = {**SETTINGS, "log.cleaner.io.max.bytes.per.second": 30 * MB}
    with Broker(settings) as broker:
        wire = connect(broker)
        topic = compacted(wire)
        end = 0
        for number in range(6):
            end = write(wire, topic, 40, 30, end)
            wait_for(broker, lambda: bool(children(broker.pid)))
            # Killed earlier or later in its work.
            time.sleep(0.1 * number)
            workers = children(broker.pid)
            broker.kill()
            wait_for(broker, lambda: not any(_runs(pid) for pid in workers))  # noqa: B023
            broker.start()
            wire = connect(broker)
            check(wire, topic, end, 30)
            folder = broker.data_dir / f"{topic}-0"
            assert not [path for path in folder.iterdir() if path.suffix == ".swap"]
        wait_for(broker, lambda: log_size(broker, topic) < 2 * MB)
        check(wire, topic, end, 30)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_damaged_log_is_set_aside_and_the_others_are_cleaned(connect: Callable[[Broker], Wire]) -> None:
    port = free_port()
    with Broker({**SETTINGS, "millstream.metrics.listener": f"127.0.0.1:{port}"}) as broker:
        wire = connect(broker)
        bad, good = compacted(wire, cleanup_policy="delete"), compacted(wire, cleanup_policy="delete")
        for topic in (bad, good):
            write(wire, topic, 60, 10)
        broker.stop()
        victim = log_files(broker, bad)[0]
        content = bytearray(victim.read_bytes())
        content[100_000] ^= 1
        victim.write_bytes(content)
        broker.start()
        wire = connect(broker)
        for topic in (bad, good):
            set_config(wire, topic, "cleanup.policy", "compact")
        wait_for(broker, lambda: "cannot be compacted" in broker.log)
        assert f"{bad}-0 cannot be compacted" in broker.log and "wrong checksum" in broker.log
        wait_for(broker, lambda: log_size(broker, good) < 2 * MB)
        assert victim.read_bytes() == content
        page = get(f"http://127.0.0.1:{port}/metrics")[1]
        metrics = dict(line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
        assert [float(v) for k, v in metrics.items() if "uncleanable_partitions_count" in k] == [1]
        assert [float(v) > MB for k, v in metrics.items() if "uncleanable_bytes" in k] == [True]


def set_config(wire: Wire, topic: str, name: str, text: str) -> None:
    answer = wire.ask(
        "incremental_alter_configs",
        resources=[
            {
                "resource_type": 2,
                "resource_name": topic,
                "configs": [{"name": name, "config_operation": 0, "value": text}],
            }
        ],
        validate_only=False,
    )
    assert answer.responses[0].error_code == 0, answer


def test_compact_and_delete(connect: Callable[[Broker], Wire]) -> None:
    """Old segments go by retention too, though the topic is compacted."""
    with Broker(SETTINGS) as broker:
        wire = connect(broker)
        topic = compacted(wire, cleanup_policy="compact,delete", retention_ms="3600000")
        end = write(wire, topic, 60, 100_000)  # every key once: nothing to compact away
        before = len(log_files(broker, topic))
        assert before > 3
        # Some turns of the cleaner and of retention, which must leave them alone.
        time.sleep(0.3)
        assert len(log_files(broker, topic)) == before
        set_config(wire, topic, "retention.bytes", str(2 * MB))
        wait_for(broker, lambda: len(log_files(broker, topic)) < before - 1)
        first = next(read(wire, topic, int(log_files(broker, topic)[0].stem)))
        assert first.value == value(first.offset)
        assert end > first.offset > 0


def test_a_topic_is_deleted_while_it_is_cleaned(connect: Callable[[Broker], Wire]) -> None:
    settings = {**SETTINGS, "log.cleaner.io.max.bytes.per.second": 2 * MB}
    with Broker(settings) as broker:
        wire = connect(broker)
        topic = compacted(wire)
        write(wire, topic, 60, 10)
        wait_for(broker, lambda: bool(children(broker.pid)))
        answer = wire.ask("delete_topics", topics=[{"name": topic, "topic_id": None}], timeout=10_000)
        assert answer.responses[0].error_code == 0
        wait_for(broker, lambda: not [p for p in broker.data_dir.iterdir() if p.name.startswith(topic)])
        other = compacted(wire)
        write(wire, other, 40, 10)
        wait_for(broker, lambda: cleaned_to(broker, other) > 0)
        assert "Traceback" not in broker.log


def test_it_can_be_switched_off(connect: Callable[[Broker], Wire]) -> None:
    with Broker({**SETTINGS, "log.cleaner.enable": False, "log.retention.check.interval.ms": 50}) as broker:
        wire = connect(broker)
        topic = compacted(wire, cleanup_policy="compact,delete", retention_bytes=str(3 * MB))
        write(wire, topic, 80, 10)
        wait_for(broker, lambda: log_size(broker, topic) <= 4 * MB)
        assert not children(broker.pid)
        assert cleaned_to(broker, topic) == 0


def test_several_logs_at_a_time(connect: Callable[[Broker], Wire]) -> None:
    settings = {
        **SETTINGS,
        "log.cleaner.threads": 3,
        "log.cleaner.io.max.bytes.per.second": 6 * MB,
        "log.cleaner.dedupe.buffer.size": 8 * MB,
    }
    with Broker(settings) as broker:
        wire = connect(broker)
        topics = [compacted(wire) for _ in range(3)]
        for topic in topics:
            write(wire, topic, 40, 10)
        wait_for(broker, lambda: len(children(broker.pid)) == 3)
        broker.stop()
        assert "Traceback" not in broker.log
