"""The topic of pipelines: made once, and followed from where it ended."""

from __future__ import annotations

from dataclasses import replace

from millstream.client import ClientConfig
from millstream.spark.runner.status_records import Command
from millstream.spark.runner.status_topic import StatusTopic, create_status_topic


def test_polling_begins_at_the_given_end(broker: str) -> None:
    """The client that makes the topic is not the one that reports: that one may have a shorter timeout."""
    config = ClientConfig.of(broker)
    create_status_topic(config)
    with StatusTopic(config) as writer:
        writer.send(Command("test-status-topic", "stop", "before", 1))
        end = create_status_topic(config)
        with StatusTopic(replace(config, total_timeout=5.0), end) as status_topic:
            writer.send(Command("test-status-topic", "stop", "after", 2))
            found = []
            while not found:
                found = [one for one in status_topic.poll(1000) if one.pipeline == "test-status-topic"]
        writer.forget("test-status-topic")
    assert found == [Command("test-status-topic", "stop", "after", 2)]
