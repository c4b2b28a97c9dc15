"""Recovery after kill -9: how fast are the bytes read that were written since the recovery point?

Four partitions get nearly one segment each, nothing is flushed, the broker is killed. It then has to read and
check every batch of these segments before it serves. The time of the next start after a clean stop is
subtracted, what remains is recovery, in MB/s. The second load shows that time grows only with the bytes since
the recovery point: a log of many segments, of which only the last was not flushed (both brokers flush a
segment when they close it, and are asked to note that every second instead of every minute). The data lie in
the page cache, as they do when a process dies and the machine does not.
"""

import shutil
import sys
import time
from pathlib import Path

import brokers
import common
import load
from brokers import Broker
from common import Measure, Report, Workload

SEGMENT_BYTES = 1 << 30


def _serve(broker: Broker, topic: str) -> float:
    started = time.perf_counter()
    broker.launch()
    brokers.first_acknowledged_produce(broker.port, topic, timeout=600)
    return time.perf_counter() - started


def _log_bytes(folder: Path, topic: str) -> int:
    return sum(path.stat().st_size for path in folder.glob(f"{topic}-*/*.log"))


def crash(name: str, topic: str, partitions: int, bytes_each: int, measures: tuple[Measure, ...]) -> Workload:
    """Write, kill, start with recovery, stop, start without."""

    def prepare(broker: Broker) -> str:
        broker.stop()
        shutil.rmtree(broker.log_dir, ignore_errors=True)
        broker.log_dir.mkdir(parents=True)
        brokers.require_room(broker.log_dir, partitions * bytes_each / 1e9)
        return topic

    def run(broker: Broker, _prepared: str) -> common.Result:
        brokers.start(broker)
        brokers.create_topic(broker, topic, partitions)
        load.produce(
            broker,
            topic,
            batch_bytes=65536,
            connections=partitions,
            partitions=partitions,
            max_bytes=partitions * bytes_each,
            seconds=600,
        )
        brokers.write_back(broker.log_dir)
        # Closed segments are flushed in the background and their recovery point is written each second.
        time.sleep(3)
        size = _log_bytes(broker.log_dir, topic)
        broker.kill()
        after_crash = _serve(broker, topic)
        if _log_bytes(broker.log_dir, topic) < size:
            raise brokers.Failed(f"{broker.name} lost acknowledged bytes")
        broker.stop()
        # The quicker of two clean starts: a slow one would make recovery look faster than it is.
        clean_starts = []
        for _ in range(2):
            clean_starts.append(_serve(broker, topic))
            broker.stop()
        after_stop = min(clean_starts)
        recovery = max(after_crash - after_stop, 0.001)
        return {
            "recovery_s": recovery,
            "clean_start_s": after_stop,
            "log_mb": size / 1e6,
            "mb_per_s": size / 1e6 / recovery,
        }

    def clean(broker: Broker, _prepared: str) -> None:
        broker.kill()
        shutil.rmtree(broker.log_dir, ignore_errors=True)

    return Workload(name, run, measures, prepare, clean, warm=False, starts_broker=True)


def measure(report: Report) -> None:
    quick = report.options.quick
    # Connections do not keep exact step: a tenth of the segment is left free, so that none rolls.
    each = SEGMENT_BYTES // 10 * (3 if quick else 9)
    long = (2 if quick else 5) * SEGMENT_BYTES + each
    unflushed = crash(
        f"recovery of {4 * each / 1e9:.1f} GB, all since the recovery point",
        "crash",
        4,
        each,
        (
            Measure("mb_per_s", "MB/s", aim=1.0, limit=500),
            Measure("recovery_s", "s", "time", more_is_better=False),
        ),
    )
    mostly_flushed = crash(
        f"recovery of {long / 1e9:.1f} GB, {each / 1e9:.1f} GB since the recovery point",
        "long",
        1,
        long,
        (Measure("recovery_s", "s", "time", more_is_better=False, aim=1.0),),
    )
    report.options.settings.setdefault("log.flush.offset.checkpoint.interval.ms", "1000")
    with common.both(report.options, report, running=False) as used:
        common.compare(report, [unflushed, mostly_flushed], used)


if __name__ == "__main__":
    sys.exit(common.main("broker_recovery", __doc__ or "", measure))
