"""Connectors in a few lines: settings, partitions, offsets, and what a worker makes of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from millstream.connect import Record, RetriableError, Sink, Source, setting
from millstream.connect.config.config_def import ConfigError, Range
from millstream.connect.data.record import SinkRecord
from millstream.testing.connect import SinkRun, SourceRun
from tests.connect.test_worker import MakeWorker, consume

PLUGIN = '''
from millstream.connect import Record, Source, setting

class Count(Source):
    """Numbers."""
    topic = setting(str)
    until = setting(int, 10)
    poll_interval_ms = setting(int, 50)

    def partitions(self):
        return [{"odd": 0}, {"odd": 1}]

    def read(self, partition, offset):
        for number in range((offset or {}).get("next", partition["odd"]), self.until, 2):
            yield Record(self.topic, key=str(partition["odd"]), value=number, offset={"next": number + 2})
'''


class Numbers(Source):
    topic = setting(str, "numbers")
    until = setting(int, validator=Range(1))
    names = setting(list, ["a", "b", "c"])
    password = setting(str, None, secret=True, doc="Not shown")

    def partitions(self) -> list[dict[str, Any]]:
        return [{"name": name} for name in self.names]

    def read(self, partition: Mapping[str, Any], offset: Mapping[str, Any] | None) -> Iterator[Record]:
        for number in range((offset or {}).get("next", 0), self.until):
            yield Record(self.topic, key=partition["name"], value=number, offset={"next": number + 1})


def test_settings_come_from_the_class() -> None:
    assert list(Numbers.config.keys) == ["poll.interval.ms", "topic", "until", "names", "password"]
    made = Numbers({"until": "5", "password": "geheim"})
    assert (made.topic, made.until, made.names, made.password) == ("numbers", 5, ("a", "b", "c"), "geheim")
    assert "geheim" not in str(Numbers.validate({"until": "5", "password": "geheim"})["password"].value)
    for wrong, text in (({}, "until"), ({"until": "0"}, "at least 1"), ({"until": "x"}, "number")):
        with pytest.raises(ConfigError, match=text):
            SourceRun(Numbers, wrong)


def test_partitions_are_dealt_and_each_goes_on_where_it_was() -> None:
    dealt = Numbers({"until": "2"}).task_settings(2)
    assert [json.loads(one["millstream.partitions"]) for one in dealt] == [
        [{"name": "a"}, {"name": "c"}],
        [{"name": "b"}],
    ]
    run = SourceRun(Numbers, {"until": "2500", "names": "a,b"})
    first = run.poll()
    assert len(first) == 4000, "a poll is bounded"
    again = run.restarted()
    rest = again.all()
    assert sorted((record.key, record.value) for record in [*first, *rest]) == [
        (name, number) for name in ("a", "b") for number in range(2500)
    ]
    run.offsets.clear()
    assert len(run.restarted().poll(commit=False)) == 4000


def test_a_sink_gets_records_again_until_it_has_written_them() -> None:
    class Kept(Sink):
        limit = setting(int, 100)
        written: list[Any] = []
        failures = [1]

        def write(self, records: Sequence[SinkRecord]) -> None:
            if self.failures and self.failures.pop():
                raise RetriableError("not now")
            for record in records:
                if record.value > self.limit:
                    self.report(record, ValueError("too large"))
                else:
                    self.written.append(record.value)

    run = SinkRun(Kept, {"limit": "2"}, tolerate=True)
    for number in (1, 2, 3):
        run.send(number)
    with pytest.raises(RetriableError):
        run.run()
    run.run()
    assert Kept.written == [1, 2]
    assert [record.value for record, _ in run.rejected] == [3]
    assert run.lag == 0


def test_a_worker_runs_it_from_its_plugin_path(
    make_worker: MakeWorker, connect_broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "counting_plugin.py").write_text(PLUGIN)
    (tmp_path / "broken_plugin.py").write_text("import nothing_of_that_name\n")
    worker = make_worker(plugin_path=str(tmp_path))
    config = {
        "connector.class": "counting_plugin.Count",
        "topic": "counted",
        "tasks.max": "2",
        "value.converter": "JsonConverter",
        "value.converter.schemas.enable": "false",
    }
    assert worker.http.put("/connectors/count/config", json=config).status_code == 201
    found = consume(connect_broker, "counted", 10)
    assert sorted(json.loads(value or b"") for _, value in found) == list(range(10))
    broken = worker.http.put(
        "/connectors/b/config", json={"connector.class": "broken_plugin.X", "topic": "x"}
    )
    assert broken.status_code in (400, 500)
    assert "nothing_of_that_name" in broken.text
