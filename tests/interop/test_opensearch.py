"""The search sink on a real OpenSearch, from Maven's jars."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from millstream.connect.data.schema import OPTIONAL, REQUIRED, Type, struct_schema
from millstream.connect.data.struct import Struct
from millstream.testing.connect import SinkRun
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop_slow
SOURCES = Path(__file__).with_name("opensearch")
SCHEMA = struct_schema([("id", REQUIRED[Type.INT32]), ("name", OPTIONAL[Type.STRING])])


@pytest.fixture(scope="module")
def opensearch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if not all(shutil.which(program) for program in ("mvn", "javac", "java")):
        pytest.skip("needs mvn, javac and java")
    folder = tmp_path_factory.mktemp("opensearch")
    jars = folder / "class-path"
    command = ["mvn", "-B", "-q", "-f", str(SOURCES / "pom.xml"), "dependency:build-classpath"]
    found = subprocess.run(
        [*command, f"-Dmdep.outputFile={jars}"], capture_output=True, text=True, timeout=900
    )
    if found.returncode != 0:
        pytest.skip(f"Maven cannot bring OpenSearch: {found.stdout[-300:]}")
    compiled = subprocess.run(
        ["javac", "-d", str(folder), "-cp", jars.read_text(), str(SOURCES / "src" / "Node.java")],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert compiled.returncode == 0, compiled.stderr
    node = subprocess.Popen(
        ["java", "-Xmx512m", "-cp", f"{folder}:{jars.read_text()}", "Node", str(folder / "data")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert node.stdout is not None and node.stdin is not None
    port = next((line.split()[1] for line in node.stdout if line.startswith("port ")), None)
    assert port is not None, "OpenSearch did not start"
    url = f"http://127.0.0.1:{port}"
    wait_until(lambda: httpx.get(url).status_code == 200, ignoring=httpx.TransportError)
    yield url
    node.stdin.close()
    node.wait(60)
    node.stdout.close()


def documents(url: str, index: str) -> dict[str, object]:
    httpx.post(f"{url}/{index}/_refresh").raise_for_status()
    hits = (
        httpx.get(f"{url}/{index}/_search", params={"size": 1000}).raise_for_status().json()["hits"]["hits"]
    )
    return {hit["_id"]: hit["_source"] for hit in hits}


def test_documents_versions_and_mappings(opensearch: str) -> None:
    settings = {
        "connection.url": opensearch,
        "behavior.on.null.values": "delete",
        "read.timeout.ms": "60000",
        "connection.timeout.ms": "30000",
    }
    sink = SinkRun("OpensearchSink", settings, tolerate=True)
    for key, value in (
        ("a", [1, "bell"]),
        ("b", [2, None]),
        ("a", [3, "saddle"]),
        ("b", None),
        ("c", [4, "x"]),
    ):
        made = None if value is None else Struct(SCHEMA, value)
        sink.send(made, key=key, topic="Items", value_schema=SCHEMA if made else None)
    sink.send({"id": "no number"}, key="d", topic="Items")
    sink.run()
    expected = {"a": {"id": 3, "name": "saddle"}, "c": {"id": 4, "name": "x"}}
    assert documents(opensearch, "items") == expected
    assert [(record.key, "mapper_parsing" in str(error)) for record, error in sink.rejected] == [("d", True)]
    mapping = httpx.get(f"{opensearch}/items/_mapping").json()["items"]["mappings"]["properties"]
    assert (mapping["id"]["type"], mapping["name"]["type"]) == ("integer", "text")
    # From the beginning again: versions keep the newest.
    sink.committed.clear()
    again = sink.restarted()
    again.run()
    assert documents(opensearch, "items") == expected
    assert again.lag == 0


def test_upserts_and_places(opensearch: str) -> None:
    settings = {"connection.url": opensearch, "read.timeout.ms": "60000", "connection.timeout.ms": "30000"}
    upserts = SinkRun("ElasticsearchSink", settings | {"write.method": "upsert"})
    upserts.send({"a": 1}, key="k", topic="merged")
    upserts.send({"b": 2}, key="k", topic="merged")
    upserts.run()
    assert documents(opensearch, "merged") == {"k": {"a": 1, "b": 2}}
    places = SinkRun("OpensearchSink", settings | {"key.ignore": "true"})
    for number in range(600):
        places.send({"n": number}, topic="places")
    places.run()
    assert len(documents(opensearch, "places")) == 600
