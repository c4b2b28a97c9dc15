"""A server of an ensemble that was killed while it joined a new leader starts again."""

from pathlib import Path

import pytest
from kazoo.client import KazooClient

from millstream.cluster.zookeeper.epochs import ACCEPTED, CURRENT, FOLDER, catch_up
from tests.support.zookeeper import RunningEnsemble


def _epoch(server_folder: Path, name: str) -> int:
    return int((server_folder / FOLDER / name).read_text())


def _set_epoch(server_folder: Path, name: str, value: int) -> None:
    (server_folder / FOLDER / name).write_text(str(value))


@pytest.mark.java
def test_a_server_whose_epoch_is_older_than_its_log_starts_again(tmp_path: Path) -> None:
    with RunningEnsemble(tmp_path) as ensemble:
        server = ensemble.servers[0]
        client = KazooClient(server.address)  # whose session is a change of the leader's epoch
        client.start(60)
        client.stop()
        client.close()
        folder = tmp_path / f"data-{server.port}"
        server.kill()
        last = _epoch(folder, CURRENT)
        assert last == _epoch(folder, ACCEPTED) > 0
        _set_epoch(folder, CURRENT, last - 1)
        server.start()
        assert _epoch(folder, CURRENT) >= last
        assert "it was killed as it joined a leader" in server.log()

        server.kill()
        last = _epoch(folder, CURRENT)
        for name in (ACCEPTED, CURRENT):
            _set_epoch(folder, name, last - 1)
        assert catch_up({"dataDir": str(folder)}) is None, "an epoch that was not accepted is not ours to set"
        assert _epoch(folder, CURRENT) == last - 1


@pytest.mark.parametrize(("end", "expected"), [(b"\0\0\0\1/", (4, 5)), (b"\0\0\0", None)])
def test_a_snapshot_counts_only_if_it_is_whole(
    tmp_path: Path, end: bytes, expected: tuple[int, int] | None
) -> None:
    folder = tmp_path / FOLDER
    folder.mkdir()
    (folder / "snapshot.400000002").write_bytes(b"ZKSN" + b"\0\0\0\1/")
    (folder / "snapshot.500000006").write_bytes(b"ZKSN" + end)
    _set_epoch(tmp_path, ACCEPTED, 5)
    _set_epoch(tmp_path, CURRENT, 4)
    assert catch_up({"dataDir": str(tmp_path)}) == expected
    assert _epoch(tmp_path, CURRENT) == (5 if expected else 4)
