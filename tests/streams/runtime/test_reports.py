"""An application that is started by itself reports like a pipeline, and is stopped like one."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from millstream.client import Cluster
from millstream.host.local import LocalHost
from millstream.spark.runner.status_records import Command, Status
from millstream.spark.runner.status_topic import StatusTopic
from millstream.streams import Streams
from millstream.streams.runtime.running import RunningStreams
from tests.streams.runtime.kit import produce, word_count
from tests.support.waiting import wait_until


def test_reports_and_the_stop_command(
    broker: str, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    words, counts = new_topic(), new_topic()
    name = f"{words}-app"
    streams = Streams(word_count(words, counts), name, bootstrap_servers=broker, state=tmp_path)
    streams.make_topics()
    produce(cluster, words, 0, (b"k", b"a"), (b"k", b"b"))
    host = LocalHost()
    running = RunningStreams(streams, host, report=True)
    try:
        with StatusTopic(streams.settings.client) as topic:

            def status() -> Status:
                return topic.read_all()[name]

            wait_until(lambda: status().state == "running", ignoring=KeyError)
            wait_until(lambda: [one.rows for one in status().queries] == [2, 2])
            found = status()
            assert [one.name for one in found.queries] == ["0_0", "1_0"]
            assert [one.lag for one in found.queries] == [0, 0]
            assert found.queries[1].state_bytes > 0
            topic.send(Command(name, "stop", found.run, round(time.time() * 1000)))
            assert running.awaitTermination(60)
            wait_until(lambda: status().state == "stopped")
    finally:
        running.stop()
        host.close()


def test_its_own_report_is_no_reason_for_another(
    broker: str,
    cluster: Cluster,
    new_topic: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It reads the topic that it writes."""
    published, polled = [], []
    publish, poll = StatusTopic.publish, StatusTopic.poll
    monkeypatch.setattr("millstream.host.metrics.REPORT_EVERY", 3600.0)
    monkeypatch.setattr(StatusTopic, "publish", lambda *of: (published.append(1), publish(*of))[1])
    monkeypatch.setattr(StatusTopic, "poll", lambda *of: (polled.append(1), poll(*of))[1])
    words = new_topic()
    application = Streams(
        word_count(words, new_topic()), f"{words}-app", bootstrap_servers=broker, state=tmp_path
    )
    application.make_topics()
    host = LocalHost()
    running = RunningStreams(application, host, report=True)
    try:
        wait_until(lambda: len(polled) >= 3)
        assert len(published) == 1
    finally:
        running.stop()
        host.close()
