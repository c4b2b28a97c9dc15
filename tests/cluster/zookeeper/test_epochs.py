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
