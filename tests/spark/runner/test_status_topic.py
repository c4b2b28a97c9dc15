"""The topic of pipelines: made once, and followed from where it ended."""

from __future__ import annotations

from dataclasses import replace

from millstream.client import ClientConfig
from millstream.spark.runner.status_records import Command
from millstream.spark.runner.status_topic import Book, prepare


def test_a_book_goes_on_from_the_end_that_it_was_given(broker: str) -> None:
    """The client that makes the topic is not the one that reports: that one may have less patience."""
    config = ClientConfig.of(broker)
    prepare(config)
    with Book(config) as writer:
        writer.command(Command("test-book", "stop", "before", 1))
        end = prepare(config)
        with Book(replace(config, total_timeout=5.0), end) as book:
            writer.command(Command("test-book", "stop", "after", 2))
            found = []
            while not found:
                found = [one for one in book.follow(1000) if one.pipeline == "test-book"]
        writer.forget("test-book")
    assert found == [Command("test-book", "stop", "after", 2)]
