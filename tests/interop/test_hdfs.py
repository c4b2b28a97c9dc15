"""The file sink on HDFS: a NameNode and a DataNode, from Maven's jars."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.connect.errors import ConnectError, RetriableError
from millstream.testing.connect import SinkRun
from tests.support.ports import free_port

pytestmark = pytest.mark.interop_slow
SOURCES = Path(__file__).with_name("hdfs")
HDFS = "io.confluent.connect.hdfs3.Hdfs3SinkConnector"


class Node:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        from hdfs_native import Client

        self._process = process
        self.url = f"hdfs://127.0.0.1:{self._said('port ').split()[1]}"
        self.client = Client(self.url)

    def _said(self, begin: str) -> str:
        assert self._process.stdout is not None
        line = next((line for line in self._process.stdout if line.startswith(begin)), None)
        assert line is not None, "HDFS has ended"
        return line

    def command(self, character: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(character)
        self._process.stdin.flush()
        self._said("done")

    def files(self, folder: str) -> dict[str, bytes]:
        """All of them, also those without a name yet."""
        found = {}
        for one in self.client.list_status(folder, True):
            if not one.isdir:
                with self.client.read(one.path) as file:
                    found[one.path.removeprefix(folder)] = file.read()
        return found


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    pytest.importorskip("hdfs_native")
    if not all(shutil.which(program) for program in ("mvn", "javac", "java")):
        pytest.skip("needs mvn, javac and java")
    folder = tmp_path_factory.mktemp("hdfs")
    jars = folder / "class-path"
    command = ["mvn", "-B", "-q", "-f", str(SOURCES / "pom.xml"), "dependency:build-classpath"]
    found = subprocess.run(
        [*command, f"-Dmdep.outputFile={jars}"], capture_output=True, text=True, timeout=900
    )
    if found.returncode != 0:
        pytest.skip(f"Maven cannot bring Hadoop: {found.stdout[-300:]}")
    compiled = subprocess.run(
        ["javac", "-d", str(folder), "-cp", jars.read_text(), str(SOURCES / "src" / "HdfsNode.java")],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert compiled.returncode == 0, compiled.stderr
    process = subprocess.Popen(
        ["java", "-Xmx384m", "-cp", f"{folder}:{jars.read_text()}", "HdfsNode", str(folder / "data")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    yield Node(process)
    assert process.stdin is not None and process.stdout is not None
    process.stdin.close()
    process.wait(60)
    process.stdout.close()


def settings(url: str, **more: str) -> dict[str, str]:
    return {
        "name": "h",
        "hdfs.url": url,
        "format.class": "io.confluent.connect.hdfs3.json.JsonFormat",
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def numbers(files: dict[str, bytes]) -> list[int]:
    return sorted(json.loads(line)["n"] for data in files.values() for line in data.splitlines())


def test_files_and_their_names(node: Node) -> None:
    sink = SinkRun(HDFS, settings(f"{node.url}/plain", flush_size="3"))
    for number in range(7):
        sink.send({"n": number}, topic="orders")
    sink.run()
    found = node.files("/plain")
    named = {name: data for name, data in found.items() if "+tmp" not in name}
    assert set(named) == {
        "/topics/orders/partition=0/orders+0+0000000000+0000000002.json",
        "/topics/orders/partition=0/orders+0+0000000003+0000000005.json",
    }
    assert numbers(named) == list(range(6))
    sink.task.stop()
    assert not [name for name in node.files("/plain") if "+tmp" in name]


def test_parquet_in_large_files(node: Node) -> None:
    from pyarrow import BufferReader, parquet

    from millstream.connect.data.schema import REQUIRED, Type, struct_schema
    from millstream.connect.data.struct import Struct

    schema = struct_schema([("n", REQUIRED[Type.INT64]), ("text", REQUIRED[Type.STRING])])
    own = settings(f"{node.url}/parquet", flush_size="20000")
    sink = SinkRun(HDFS, own | {"format.class": "io.confluent.connect.hdfs3.parquet.ParquetFormat"})
    for number in range(20000):
        text = f"{number:x}" * 100
        sink.send(Struct(schema, [number, text]), value_schema=schema)
    sink.run()
    ((name, data),) = node.files("/parquet").items()
    assert name.endswith("+0000000000+0000019999.parquet") or name.endswith(".snappy.parquet")
    assert parquet.read_table(BufferReader(data))["n"].to_pylist() == list(range(20000))


def test_each_record_is_in_one_file_whoever_dies(node: Node) -> None:
    """A task that vanishes at every step there is: between puts, before and behind the name of a file."""
    own = settings(f"{node.url}/deaths", flush_size="5")
    sink = SinkRun(HDFS, own)
    for number in range(23):
        sink.send({"n": number}, topic="deaths")
    steps = 0
    while steps < 200:
        for _ in range(1 + steps % 4):
            steps += 1
            if not sink.step():
                break
        sink = SinkRun(HDFS, own, before=sink)
        if sink.committed and min(one.offset for one in sink.committed.values()) >= 20:
            break
    sink.run()
    sink.task.stop()
    found = node.files("/deaths")
    assert numbers(found) == list(range(20))
    assert len(found) == 4


def test_a_name_node_that_is_not_there(node: Node) -> None:
    sink = SinkRun(HDFS, settings(f"hdfs://127.0.0.1:{free_port()}/nowhere", flush_size="1"))
    sink.send({"n": 1})
    with pytest.raises(RetriableError, match="HDFS at hdfs://127"):
        while sink.step():
            pass


def test_a_data_node_that_goes_away(node: Node) -> None:
    """The file cannot be written: the task fails, and the next one begins the range anew."""
    own = settings(f"{node.url}/away", flush_size="3")
    sink = SinkRun(HDFS, own)
    for number in range(3):
        sink.send({"n": number}, topic="away")
    node.command("-")
    with pytest.raises(ConnectError):
        sink.run()
    node.command("+")
    again = SinkRun(HDFS, own, before=sink)
    again.run()
    again.task.stop()
    assert numbers(node.files("/away")) == [0, 1, 2]
