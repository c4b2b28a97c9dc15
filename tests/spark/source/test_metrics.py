"""How far behind, by what a report of Spark says."""

import json

from millstream.spark.source.metrics import offsets_behind


def report(*sources: tuple[object, object]) -> dict[str, object]:
    return {"sources": [{"endOffset": end, "latestOffset": latest} for end, latest in sources]}


def test_the_figures_of_sparks_connector():
    done = json.dumps({"offsets": {"a": {"0": 5, "1": 9}}, "plan": []})
    newest = {"offsets": {"a": {"0": 15, "1": 9}, "b": {"0": 2}}}  # b is new: nothing of it was read
    assert offsets_behind(report((done, newest))) == [
        {"minOffsetsBehindLatest": 0, "maxOffsetsBehindLatest": 10, "avgOffsetsBehindLatest": 4.0}
    ]


def test_offsets_as_sparks_connector_writes_them():
    (found,) = offsets_behind(report(('{"offsets":{"0":1}}', '{"offsets":{"0":4}}')))
    assert found["maxOffsetsBehindLatest"] == 3


def test_sources_of_other_kinds_have_none():
    assert offsets_behind(report((41, 42), (None, None))) == [{}, {}]
    assert offsets_behind({}) == []
