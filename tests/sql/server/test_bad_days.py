"""What goes wrong around a server: clients that do not read, topics and services that go away, full disks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from millstream.client import Admin, Cluster, Producer
from millstream.client.config import ClientConfig
from millstream.sql.commands import Command, CommandTopic, CommandTopicUnusable, topic_name
from millstream.sql.views import TableView, ViewUnavailable
from millstream.wire.records import Record
from tests.support.waiting import wait_until


def _fill(bootstrap: str, topic: str, count: int) -> None:
    value = json.dumps({"V": "x" * 1000}).encode()
    with Cluster(ClientConfig.of(bootstrap)) as cluster:
        producer = Producer(cluster)
        for start in range(0, count, 500):
            rows = [Record(place, 1, b"%d" % (start + place), value) for place in range(500)]
            producer.send(topic, 0, rows)


def test_a_command_topic_that_is_deleted_while_it_is_followed(bootstrap: str, name: str) -> None:
    client = ClientConfig.of(bootstrap)
    commands = CommandTopic(client, name, lambda _command: None)
    commands.start()
    try:
        with commands.exclusive() as append:
            append(Command("stream/S/create", "CREATE ..."))
        with Cluster(client) as cluster:
            Admin(cluster).delete_topics([topic_name(name)])
        with (
            pytest.raises(CommandTopicUnusable, match=r"was deleted.*ksql\.service\.id"),
            commands.exclusive(),
        ):
            pass
        wait_until(lambda: commands.failure is not None)
    finally:
        commands.close()


def test_a_view_that_is_larger_than_its_room_says_so(bootstrap: str, tmp_path: Path, name: str) -> None:
    _fill(bootstrap, name, 5_000)
    view = TableView(tmp_path, ClientConfig.of(bootstrap), name, size=1 << 20)
    try:
        with pytest.raises(ViewUnavailable, match=f"the view of {name} is behind: .*reached its limit"):
            wait_until(lambda: view.catch_up())
    finally:
        view.close()
