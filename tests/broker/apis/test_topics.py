"""DeleteTopics: topics that are named in two ways, or in none. ElectLeaders: elections that nobody knows."""

from __future__ import annotations

from millstream.wire.errors import ErrorCode

from ..conftest import Wire


def test_a_topic_is_deleted_by_its_name_or_by_its_id_but_not_by_both(wire: Wire) -> None:
    both, by_name, by_id = (wire.create() for _ in range(3))
    ids = {topic.name: topic.topic_id for topic in wire.metadata(both, by_name, by_id).topics}
    answer = wire.ask(
        "delete_topics",
        topics=[
            {"name": both, "topic_id": ids[both]},
            {"name": by_name, "topic_id": None},
            {"name": None, "topic_id": ids[by_id]},
            {"name": None, "topic_id": None},
        ],
        timeout=5000,
    )
    found = {(result.name, result.topic_id): result for result in answer.responses}
    assert {topic_partition: result.error_code for topic_partition, result in found.items()} == {
        (both, ids[both]): ErrorCode.invalid_request,
        (by_name, ids[by_name]): 0,
        (by_id, ids[by_id]): 0,
        (None, None): ErrorCode.invalid_request,
    }
    assert found[both, ids[both]].error_message == "You may not specify both topic name and topic id."
    assert found[None, None].error_message == "Neither topic name nor id were specified."
    assert [topic.error_code for topic in wire.metadata(both).topics] == [0]


def test_a_topic_that_is_named_twice_is_not_deleted(wire: Wire) -> None:
    topic, other = wire.create(), wire.create()
    ids = {each.name: each.topic_id for each in wire.metadata(topic, other).topics}
    answer = wire.ask(
        "delete_topics",
        topics=[
            {"name": topic, "topic_id": None},
            {"name": "no-such", "topic_id": None},
            {"name": topic, "topic_id": None},
            {"name": None, "topic_id": ids[other]},
            {"name": "no-such", "topic_id": None},
            {"name": None, "topic_id": ids[other]},
        ],
        timeout=5000,
    )
    bad = ErrorCode.invalid_request
    found = [(r.name, r.topic_id, r.error_code, r.error_message) for r in answer.responses]
    assert sorted(found, key=str) == sorted(
        [
            (topic, None, bad, "Duplicate topic name."),
            ("no-such", None, bad, "Duplicate topic name."),
            (None, ids[other], bad, "Duplicate topic id."),
        ],
        key=str,
    )
    assert {each.error_code for each in wire.metadata(topic, other).topics} == {0}


def test_an_election_of_a_kind_that_nobody_knows(wire: Wire) -> None:
    topic = wire.create(partitions=2)
    answer = wire.ask(
        "elect_leaders",
        election_type=7,
        topic_partitions=[{"topic": topic, "partitions": [0, 1]}],
        timeout=5000,
    )
    assert answer.error_code == ErrorCode.invalid_request
    (found,) = answer.replica_election_results
    assert [(p.partition_id, p.error_code) for p in found.partition_result] == [
        (0, ErrorCode.invalid_request),
        (1, ErrorCode.invalid_request),
    ]
