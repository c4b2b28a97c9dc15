"""Groups and offsets outlive the broker: a clean stop, and a kill."""

import pytest

from millstream.testing import Broker

from ...raw_frames import new_topic
from .conftest import SETTINGS
from .raw_groups import Groups


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_members_and_offsets_are_there_again(how: str) -> None:
    with Broker(SETTINGS) as broker:
        new_topic(broker.bootstrap_servers, "t1", 3)
        with Groups(broker.bootstrap_servers) as client:
            client.find("g")
            member = client.enter("g", session=6000).member_id
            client.sync("g", member, 1, {member: b"part"})
            client.commit("g", {"t1": {0: 5, 1: (6, "note")}}, member, 1)
            client.commit("alone", {"t1": {2: 9}})
            client.commit("gone", {"t1": {2: 9}})
            client.delete("gone")
            left = client.enter("left").member_id
            client.sync("left", left, 1, {left: b""})
            client.leave("left", (left, None))
        getattr(broker, how)()
        broker.start()
        with Groups(broker.bootstrap_servers) as client:
            assert client.heartbeat("g", member, 1) == 0
            assert client.sync("g", member, 1).assignment == b"part"
            described = client.describe("g")
            assert (described.group_state, described.protocol_data) == ("Stable", "range")
            assert client.fetch("g") == {"t1": {0: 5, 1: 6}}
            assert client.fetch("alone") == {"t1": {2: 9}}
            assert client.fetch("gone") == {}
            assert {each: found.group_state for each, found in client.list().items()} == {
                "g": "Stable",
                "alone": "Empty",
                "left": "Empty",
            }
            assert client.commit("g", {"t1": {0: 7}}, member, 1) == {"t1": {0: 0}}
            joined = client.enter("left")
            assert joined.generation_id == 3


def test_offsets_of_a_deleted_topic_go_with_it() -> None:
    with Broker(SETTINGS) as broker, Groups(broker.bootstrap_servers) as client:
        for topic in ("t1", "t2"):
            new_topic(broker.bootstrap_servers, topic, 2)
        client.find("g")
        client.commit("g", {"t1": {0: 5, 1: 6}, "t2": {0: 7}})
        client.ask("delete_topics", 5, topic_names=["t1"], timeout=10_000)
        assert client.fetch("g") == {"t2": {0: 7}}
        new_topic(broker.bootstrap_servers, "t1", 2)
        assert client.fetch("g", {"t1": [0]}) == {"t1": {0: -1}}
        broker.restart()
        with Groups(broker.bootstrap_servers) as again:
            assert again.fetch("g") == {"t2": {0: 7}}
