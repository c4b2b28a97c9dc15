"""The data folders of a broker: identity, lock, checkpoints, clean and unclean stops, partitions coming and
going."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID, uuid4

import pytest

from millstream.settings.log_config import LogConfig
from millstream.storage import checkpoints
from millstream.storage.checkpoints import FormatError, MetaProperties
from millstream.storage.log_dirs import LogDirError, LogDirs, default_file_limit, parse_folder_name
from millstream.wire.errors import ErrorCode, KafkaError

from .batches import NOW, batch, files, fill, headers, small


def start(*paths: Path, node_id: int = 1, cluster_id: str | None = None) -> LogDirs:
    log_dirs = LogDirs(paths)
    log_dirs.open(node_id, cluster_id)
    log_dirs.load(lambda topic: small())
    return log_dirs


def test_a_fresh_folder_gets_an_identity(tmp_path: Path) -> None:
    log_dirs = start(tmp_path / "a", tmp_path / "b")
    assert len(log_dirs.cluster_id) == 22
    ids = {meta.directory_id for meta in log_dirs.meta.values()}
    assert len(ids) == 2
    log_dirs.close()
    again = start(tmp_path / "a", tmp_path / "b")
    assert again.cluster_id == log_dirs.cluster_id
    assert {meta.directory_id for meta in again.meta.values()} == ids
    again.close()
    lines = (tmp_path / "a" / "meta.properties").read_text().splitlines()
    assert "version=1" in lines
    assert "node.id=1" in lines


SEGMENT_SUFFIXES = (".log", ".index", ".timeindex")


def test_a_partition_has_all_its_files_from_the_first_moment(tmp_path: Path) -> None:
    log_dirs = start(tmp_path)
    log = log_dirs.create("t", 0, uuid4(), small())
    folder = tmp_path / "t-0"
    beside = {"leader-epoch-checkpoint", "partition.metadata"}
    assert set(files(folder)) == beside | {"0" * 20 + suffix for suffix in SEGMENT_SUFFIXES}
    assert all((folder / name).stat().st_size == 0 for name in files(folder) if name != "partition.metadata")
    fill(log, 5)
    log.roll(NOW)
    assert {f"{log.end_offset:020d}{suffix}" for suffix in SEGMENT_SUFFIXES} <= set(files(folder))
    log_dirs.close()


def test_an_empty_partition_of_an_older_release_gets_the_files_it_lacks(tmp_path: Path) -> None:
    log_dirs = start(tmp_path)
    log_dirs.create("t", 0, uuid4(), small())
    log_dirs.close()
    folder = tmp_path / "t-0"
    complete = files(folder)
    for name in ("0" * 20 + ".index", "0" * 20 + ".timeindex", "leader-epoch-checkpoint"):
        (folder / name).unlink()
    start(tmp_path).close()
    assert files(folder) == complete


def test_only_one_broker_at_a_time(tmp_path: Path) -> None:
    log_dirs = start(tmp_path)
    with pytest.raises(LogDirError, match="in use by another broker"):
        LogDirs([tmp_path]).open(1)
    log_dirs.close()
    start(tmp_path).close()


def test_wrong_owners_are_refused(tmp_path: Path) -> None:
    start(tmp_path / "a").close()
    start(tmp_path / "b").close()
    with pytest.raises(LogDirError, match="belongs to node 1"):
        start(tmp_path / "a", node_id=2)
    with pytest.raises(LogDirError, match="different clusters"):
        start(tmp_path / "a", tmp_path / "b")
    with pytest.raises(LogDirError, match="different clusters"):
        start(tmp_path / "a", cluster_id="another")
    with pytest.raises(LogDirError, match="twice"):
        LogDirs([tmp_path / "a", tmp_path / "a"])
    with pytest.raises(LogDirError):
        LogDirs([])
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "meta.properties").write_bytes((tmp_path / "a" / "meta.properties").read_bytes())
    with pytest.raises(LogDirError, match="copy"):
        start(tmp_path / "a", tmp_path / "c")
    start(tmp_path / "a").close()  # every refusal has given the locks back


def test_an_unknown_version_is_refused(tmp_path: Path) -> None:
    start(tmp_path).close()
    path = tmp_path / "meta.properties"
    path.write_text(path.read_text().replace("version=1", "version=2"))
    with pytest.raises(FormatError, match="version 2"):
        start(tmp_path)
    path.write_text("version=1\nnode.id=x\ncluster.id=c\n")
    with pytest.raises(FormatError, match="damaged"):
        start(tmp_path)


def test_the_meta_file_of_older_kafka(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("#\n#Fri\nversion=0\nbroker.id=7\ncluster.id=abc\n")
    log_dirs = start(tmp_path, node_id=7)
    assert log_dirs.cluster_id == "abc"
    log_dirs.close()


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("not a folder")
    with pytest.raises(LogDirError, match="cannot use"):
        start(tmp_path / "a")


def test_create_close_load(tmp_path: Path) -> None:
    log_dirs = start(tmp_path)
    topic_id = uuid4()
    log = log_dirs.create("my-topic.v1", 3, topic_id, LogConfig())
    assert (log.topic, log.partition, log.topic_id, log.name) == ("my-topic.v1", 3, topic_id, "my-topic.v1-3")
    fill(log, 5)
    with pytest.raises(KafkaError) as raised:
        log_dirs.create("my-topic.v1", 3, topic_id, LogConfig())
    assert raised.value.code is ErrorCode.topic_already_exists
    log.flush_now()
    log_dirs.close()
    assert {".kafka_cleanshutdown", "my-topic.v1-3", "recovery-point-offset-checkpoint"} <= files(tmp_path)
    log_dirs = start(tmp_path)
    assert log_dirs.clean == {str(tmp_path): True}
    assert ".kafka_cleanshutdown" not in files(tmp_path), "a crash from now on is seen as one"
    log = log_dirs.logs["my-topic.v1", 3]
    assert (log.topic_id, log.end_offset, log.high_watermark, log.recovery_point) == (topic_id, 5, 5, 5)
    log_dirs.close()


def test_partitions_spread_over_folders(tmp_path: Path) -> None:
    log_dirs = start(tmp_path / "a", tmp_path / "b", tmp_path / "c")
    for partition in range(9):
        log_dirs.create("t", partition, uuid4(), LogConfig())
    counts = [
        sum(1 for log in log_dirs.logs.values() if log_dirs.folder_of(log) == path) for path in log_dirs.paths
    ]
    assert counts == [3, 3, 3]
    log_dirs.delete(log_dirs.logs["t", 0], NOW)
    assert log_dirs.folder_of(log_dirs.create("t", 9, uuid4(), LogConfig())) == log_dirs.paths[0]
    log_dirs.close()
    assert len(start(tmp_path / "a", tmp_path / "b", tmp_path / "c").logs) == 9


def test_the_same_partition_in_two_folders(tmp_path: Path) -> None:
    log_dirs = start(tmp_path / "a", tmp_path / "b")
    log_dirs.create("t", 0, uuid4(), LogConfig())
    log_dirs.close()
    (tmp_path / "b" / "t-0").mkdir()
    with pytest.raises(LogDirError, match="two data folders"):
        start(tmp_path / "a", tmp_path / "b")


def test_after_a_kill(tmp_path: Path) -> None:
    log_dirs = start(tmp_path)
    log = log_dirs.create("t", 0, uuid4(), small())
    fill(log, 25)
    log.flush_now()
    log_dirs.checkpoint_recovery_points()
    log_dirs.checkpoint_high_watermarks()
    fill(log, 10)
    log_dirs._unlock()  # what the death of the process does
    log_dirs = start(tmp_path)
    assert log_dirs.clean == {str(tmp_path): False}
    assert not log_dirs.page_cache_lost, "same boot: whatever was written is still there"
    log = log_dirs.logs["t", 0]
    assert (log.end_offset, log.recovery_point, log.high_watermark) == (35, 25, 25)
    log_dirs.close()


def test_a_power_cut_is_recognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log_dirs = start(tmp_path)
    assert not log_dirs.page_cache_lost
    log_dirs.data_loss_reported()
    log_dirs._unlock()
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "current_boot_id", lambda: "another boot")
        log_dirs = start(tmp_path)
        assert log_dirs.page_cache_lost
        log_dirs._unlock()
        log_dirs = start(tmp_path)
        assert log_dirs.page_cache_lost, "the process died before it could report the loss"
        log_dirs.close()
        log_dirs = start(tmp_path)
        assert log_dirs.page_cache_lost, "it stopped before it could report the loss"
        assert log_dirs.data_lost
        log_dirs.data_loss_reported()
        assert not log_dirs.data_lost, "said once: a later registration of this process has nothing to report"
        log_dirs.close()
    log_dirs = start(tmp_path)
    assert not log_dirs.page_cache_lost, "the stop was clean"
    log_dirs.close()
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "current_boot_id", lambda: "")
        start(tmp_path)._unlock()
        log_dirs = start(tmp_path)
        assert log_dirs.page_cache_lost, "where there is no boot id, nobody can tell"
        log_dirs.close()


def test_delete(tmp_path: Path) -> None:
    log_dirs = start(tmp_path)
    log = log_dirs.create("t", 0, uuid4(), LogConfig(file_delete_delay_ms=1000))
    fill(log, 3)
    held = log.read(0, 1000)
    assert held.segment is not None
    held.segment.acquire()
    log_dirs.delete(log, NOW)
    assert log_dirs.logs == {}
    (name,) = [path.name for path in tmp_path.iterdir() if path.is_dir()]
    assert name.startswith("t-0.")
    assert name.endswith("-delete")
    assert len(held.read()) == 300, "a fetch in flight is served to its end"
    held.segment.release()
    assert log_dirs.reap(NOW + 999) == 0
    assert log_dirs.reap(NOW + 1000) == 1
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]
    log_dirs.close()


def test_a_deleted_folder_is_removed_by_the_next_start(tmp_path: Path) -> None:
    log_dirs = start(tmp_path)
    log_dirs.delete(log_dirs.create("t", 0, uuid4(), LogConfig()), NOW)
    log_dirs._unlock()
    log_dirs = start(tmp_path)
    assert log_dirs.logs == {}
    assert log_dirs.reap() == 1
    log_dirs.close()


def test_a_new_partition_inherits_nothing_from_its_namesake(tmp_path: Path) -> None:
    log_dirs = start(tmp_path)
    log = log_dirs.create("t", 0, uuid4(), small(file_delete_delay_ms=0))
    fill(log, 25)
    log.advance_start(12)
    log_dirs.close()
    log_dirs = start(tmp_path)
    log_dirs.delete(log_dirs.logs["t", 0], NOW)
    log = log_dirs.create("t", 0, uuid4(), small())
    assert (log.start_offset, log.end_offset) == (0, 0)
    fill(log, 5)
    log_dirs._unlock()
    log_dirs = start(tmp_path)
    log = log_dirs.logs["t", 0]
    assert (log.start_offset, log.end_offset, log.recovery_point) == (0, 5, 0)
    log_dirs.close()


def test_strays_are_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log_dirs = start(tmp_path)
    log = log_dirs.create("t", 0, uuid4(), LogConfig())
    fill(log, 3)
    renamed = log_dirs.set_aside_stray(log)
    assert renamed.endswith("-stray")
    assert "t-0" in caplog.text
    assert (Path(renamed) / "00000000000000000000.log").stat().st_size == 300
    log_dirs.close()
    log_dirs = start(tmp_path)
    assert log_dirs.logs == {}
    assert Path(renamed).exists()
    log_dirs.close()


def test_long_topic_names_can_be_deleted(tmp_path: Path) -> None:
    log_dirs = start(tmp_path)
    log = log_dirs.create("x" * 249, 12345, uuid4(), LogConfig())
    log_dirs.delete(log, NOW)
    log_dirs.close()


def test_start_offsets_survive(tmp_path: Path) -> None:
    log_dirs = start(tmp_path)
    for partition in range(3):
        fill(log_dirs.create("t", partition, uuid4(), small()), 25)
    log_dirs.logs["t", 1].advance_start(13)
    log_dirs.close()
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n1\nt 1 13\n"
    log_dirs = start(tmp_path)
    assert [log_dirs.logs["t", partition].start_offset for partition in range(3)] == [0, 13, 0]
    log_dirs.close()


@pytest.mark.parametrize("content", ["", "0\n", "7\n1\nt 0 5\n", "0\n2\nt 0 5\n", "0\n1\nt zero 5\n", "\xff"])
def test_damaged_checkpoints_cost_only_time(tmp_path: Path, content: str) -> None:
    log_dirs = start(tmp_path)
    fill(log_dirs.create("t", 0, uuid4(), small()), 25)
    log_dirs._unlock()
    for name in (checkpoints.RECOVERY_POINTS, checkpoints.START_OFFSETS, checkpoints.HIGH_WATERMARKS):
        (tmp_path / name).write_text(content, encoding="latin-1")
    log_dirs = start(tmp_path)
    assert len(headers(log_dirs.logs["t", 0])) == 25
    log_dirs.close()


def test_a_torn_topic_id(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log_dirs = start(tmp_path)
    fill(log_dirs.create("t", 0, uuid4(), small()), 3)
    log_dirs.close()
    (tmp_path / "t-0" / "partition.metadata").write_text("version: 0\ntopic_")
    log_dirs = start(tmp_path)
    assert log_dirs.logs["t", 0].topic_id is None
    assert "partition.metadata" in caplog.text
    log_dirs.close()


def test_other_folders_are_left_alone(tmp_path: Path) -> None:
    for name in ("lost+found", "millstream-metadata", "__cluster_metadata-0", "no-number", "-5", "t-x"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "keep").write_text("me")
    log_dirs = start(tmp_path)
    assert log_dirs.logs == {}
    log_dirs.close()
    assert all((tmp_path / name / "keep").exists() for name in ("lost+found", "__cluster_metadata-0", "t-x"))


def test_a_file_with_many_partitions_uses_one_sync(tmp_path: Path) -> None:
    log_dirs = start(tmp_path)
    for partition in range(40):
        fill(log_dirs.create("t", partition, uuid4(), small()), 3)
    log_dirs.close()
    log_dirs = start(tmp_path)
    assert log_dirs.clean[str(tmp_path)]
    assert {log.end_offset for log in log_dirs.logs.values()} == {3}
    assert len(log_dirs.pool) == 0, "no descriptor per idle partition"
    log_dirs.close()


def test_names() -> None:
    assert parse_folder_name("a-b-7") == ("a-b", 7)
    for name in ("a", "-1", "a-", "a-b", "a-1x", "a-1.0123-delete", "a-²"):
        assert parse_folder_name(name) is None
    assert default_file_limit() >= 16


def test_ids() -> None:
    value = UUID("3a16db00-6b33-4265-9748-bb34696eb6c5")
    assert checkpoints.spell_id(value) == "OhbbAGszQmWXSLs0aW62xQ"
    assert checkpoints.parse_id("OhbbAGszQmWXSLs0aW62xQ") == value
    for bad in ("", "short", "x" * 23, "!" * 22):
        with pytest.raises(ValueError):
            checkpoints.parse_id(bad)
    for _ in range(200):
        assert not checkpoints.spell_id(checkpoints.random_id()).startswith("-")


def test_partition_metadata(tmp_path: Path) -> None:
    assert checkpoints.read_topic_id(str(tmp_path)) is None
    value = uuid4()
    checkpoints.write_topic_id(str(tmp_path), value)
    assert checkpoints.read_topic_id(str(tmp_path)) == value
    path = tmp_path / "partition.metadata"
    assert path.read_text() == f"version: 0\ntopic_id: {checkpoints.spell_id(value)}"
    for damaged in ("", "version: 1\ntopic_id: x", "version: 0\n", "version: 0\ntopic_id: x\n"):
        path.write_text(damaged)
        with pytest.raises(FormatError):
            checkpoints.read_topic_id(str(tmp_path))


def test_meta_round_trip(tmp_path: Path) -> None:
    assert checkpoints.read_meta(str(tmp_path)) is None
    meta = MetaProperties("cluster", 5, "directory")
    checkpoints.write_meta(str(tmp_path), meta)
    assert checkpoints.read_meta(str(tmp_path)) == meta


def test_a_late_append_to_a_deleted_partition(tmp_path: Path) -> None:
    log_dirs = start(tmp_path)
    log = log_dirs.create("t", 0, uuid4(), LogConfig())
    log_dirs.delete(log, NOW)
    with pytest.raises(KafkaError) as raised:
        log.append_leader(batch(), 0, NOW)
    assert raised.value.code is ErrorCode.kafka_storage_error
    log_dirs.close()


def test_how_long_producers_are_remembered_can_change(tmp_path: Path) -> None:
    log_dirs = LogDirs([tmp_path])
    log_dirs.open(1)
    first = log_dirs.create("t", 0, uuid4(), LogConfig())
    log_dirs.producers_expire_after(5000)
    second = log_dirs.create("t", 1, uuid4(), LogConfig())
    assert (first.producers.expiration_ms, second.producers.expiration_ms) == (5000, 5000)
    log_dirs.close()


def test_a_folder_that_lost_its_topic_id_is_given_it_back(tmp_path: Path) -> None:
    """`partition.metadata` is durable with the first flush; a power failure before that may leave it
    empty."""
    log_dirs = start(tmp_path)
    log_dirs.create("orders", 0, uuid4(), LogConfig())
    log_dirs.close(clean=False)
    (tmp_path / "orders-0" / "partition.metadata").write_bytes(b"")
    log_dirs = start(tmp_path)
    log = log_dirs.logs["orders", 0]
    assert log.topic_id is None
    topic_id = uuid4()
    log.adopt(topic_id)
    log.flush_now()
    log_dirs.close(clean=False)
    log_dirs = start(tmp_path)
    assert log_dirs.logs["orders", 0].topic_id == topic_id
    log_dirs.close()
