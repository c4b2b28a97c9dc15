"""The e-bike plant: the account at the end must notice what is wrong, and the whole demo must add up."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from millstream.client import ClientConfig, Cluster, Producer
from millstream.serdes import Decoder, SchemaRegistry, SerdeError
from millstream.testing import Broker
from millstream.wire.records import Record, encode_batch
from tests.support.waiting import wait_until

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "ebike"
sys.path.insert(0, str(EXAMPLE))


def test_the_account_notices_what_is_missing_or_repeated(tmp_path: Path) -> None:
    from check import account, read_topic  # type: ignore[import-not-found]
    from demo import start_registry  # type: ignore[import-not-found]
    from plant import (  # type: ignore[import-not-found]
        ALERTS,
        AUDIT,
        BY_STAGE,
        DEAD,
        EVENTS,
        STAGES,
        TRENDS,
        Sensors,
        create_topics,
    )

    with Broker({"group.initial.rebalance.delay.ms": 0}) as broker:
        servers = broker.bootstrap_servers
        registry, url = start_registry(servers, tmp_path)
        try:
            create_topics(servers)
            sensors = Sensors(servers, url, 2000)
            sensors.start()
            wait_until(lambda: len(sensors.levels) >= 500 or sensors.failure)
            sensors.finish()
            assert sensors.failure is None
            with Cluster(ClientConfig.of(servers)) as cluster:
                # What the pipeline does, in plain Python.
                decoder = Decoder(SchemaRegistry(url))
                out: dict[tuple[str, int], list[Record]] = {}
                counts: dict[str, int] = {}
                for partition, rows in read_topic(cluster, EVENTS).items():
                    for row in rows:
                        try:
                            event = decoder.decode(row.value)
                        except SerdeError:
                            out.setdefault((DEAD, 0), []).append(row)
                            continue
                        out.setdefault((AUDIT, partition % 2), []).append(row)
                        if event["level"] != "info":
                            out.setdefault((ALERTS, 0 if event["level"] == "critical" else 1), []).append(row)
                            counts[event["stage"]] = counts.get(event["stage"], 0) + 1
                for stage, count in counts.items():
                    row, key = {"stage": STAGES[stage]["name"], "alerts": count}, f"{stage}@now".encode()
                    for topic in (TRENDS, BY_STAGE):
                        out.setdefault((topic, 0), []).append(Record(0, 0, key, json.dumps(row).encode()))
                left_out = out[AUDIT, 0].pop()
                producer = Producer(cluster)
                producer.send_batches(
                    {topic_partition: encode_batch(rows) for topic_partition, rows in out.items()}
                )
                assert account(servers, url, sensors)[1] == [
                    "events in the audit trail: 1 missing, 0 too many"
                ]
                producer.send(AUDIT, 0, [left_out])
                right, wrong = account(servers, url, sensors)
                assert (len(right), wrong) == (6, [])
                producer.send(AUDIT, 1, [left_out])
                producer.send(TRENDS, 0, [Record(0, 0, b"frame@now", b'{"alerts": 0}')])
                producer.send(BY_STAGE, 0, [Record(0, 0, b"motor@now", b'{"stage": "?"}')])
                wrong = account(servers, url, sensors)[1]
                assert wrong[0] == "events in the audit trail: 0 missing, 1 too many"
                assert wrong[1].startswith("the windows count")
                assert wrong[2].endswith("2 differ, and 1 have the wrong name")
        finally:
            registry.stop()


@pytest.mark.spark
@pytest.mark.timeout(2400)
def test_the_whole_demo_adds_up() -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE / "demo.py"), "--seconds", "4", "--rate", "300"],
        capture_output=True,
        text=True,
        timeout=2300,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert "exactly once, across a kill -9 of the broker" in done.stdout
    assert "WRONG" not in done.stdout and done.stderr == ""
