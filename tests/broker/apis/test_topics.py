"""DeleteTopics: topics that are named in two ways, or in none."""

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
    assert {place: result.error_code for place, result in found.items()} == {
        (both, ids[both]): ErrorCode.invalid_request,
        (by_name, ids[by_name]): 0,
        (by_id, ids[by_id]): 0,
        (None, None): ErrorCode.invalid_request,
    }
    assert found[both, ids[both]].error_message == "You may not specify both topic name and topic id."
    assert found[None, None].error_message == "Neither topic name nor id were specified."
    assert [topic.error_code for topic in wire.metadata(both).topics] == [0]
