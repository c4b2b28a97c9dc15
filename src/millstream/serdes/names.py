"""Under which subject a schema is registered: by topic, by the record's full name, or by both."""

from collections.abc import Callable

SubjectName = Callable[[str, str | None, bool], str]  # topic, record's name, whether it is the key


def topic_name(topic: str, record: str | None, key: bool) -> str:
    """`topic-value`: one schema per topic. The default."""
    return f"{topic}-{'key' if key else 'value'}"


def record_name(topic: str, record: str | None, key: bool) -> str:
    """`com.shop.Order`: one schema per record type, whatever the topic."""
    return _needed(record)


def topic_record_name(topic: str, record: str | None, key: bool) -> str:
    """`topic-com.shop.Order`: several record types in one topic, each with its own schema there."""
    return f"{topic}-{_needed(record)}"


def _needed(record: str | None) -> str:
    if not record:
        raise ValueError("this strategy needs a schema with a name (a record, a message, a title)")
    return record


STRATEGIES: dict[str, SubjectName] = {
    "topic": topic_name,
    "record": record_name,
    "topic-record": topic_record_name,
    "TopicNameStrategy": topic_name,
    "RecordNameStrategy": record_name,
    "TopicRecordNameStrategy": topic_record_name,
}
