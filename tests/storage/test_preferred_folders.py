"""Folders that are remembered for replicas to come: the last word, within a limit."""

from millstream.storage import preferred_folders
from millstream.storage.preferred_folders import PreferredFolders
from millstream.wire.topic_partition import TopicPartition


def test_the_last_word_counts_until_it_is_forgotten() -> None:
    folders, key = PreferredFolders(), TopicPartition("t", 0)
    assert folders.of(key) is None
    folders.remember(key, "/one")
    folders.remember(key, "/two")
    assert folders.of(key) == "/two"
    folders.forget(key)
    folders.forget(key)
    assert folders.of(key) is None


def test_the_oldest_goes_first() -> None:
    folders = PreferredFolders()
    keys = [TopicPartition("t", index) for index in range(preferred_folders.MAX_FOLDERS + 2)]
    for key in keys[:-2]:
        folders.remember(key, "/one")
    folders.remember(keys[0], "/two")  # and is the newest now
    for key in keys[-2:]:
        folders.remember(key, "/one")
    assert [folders.of(key) for key in keys[:4]] == ["/two", None, None, "/one"]
