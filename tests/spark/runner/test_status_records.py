"""The parts of the runner that need neither Spark nor a broker."""

import io
import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from millstream.spark.errors import PipelineError
from millstream.spark.runner.java import java_problem
from millstream.spark.runner.pipeline_file import App, Settings, reason
from millstream.spark.runner.progress import lag_of, take_in
from millstream.spark.runner.screen import Lines, line, rows, size
from millstream.spark.runner.status_records import (
    RUNNING,
    STOPPED,
    Command,
    QueryStatus,
    Status,
    command_key,
    read,
    status_key,
    write_command,
    write_status,
)
from millstream.spark.source.metrics import offsets_in
from millstream.streams.runtime.application import StreamsWriter

PROGRESS: dict[str, Any] = {
    "batchId": 7,
    "batchDuration": 250,
    "numInputRows": 100,
    "inputRowsPerSecond": 50.04,
    "processedRowsPerSecond": "Infinity",
    "eventTime": {"watermark": "2026-11-15T23:00:00.000Z"},
    "stateOperators": [{"numRowsTotal": 3, "memoryUsedBytes": 2048, "numRowsDroppedByWatermark": 2}],
    "sources": [
        {
            "endOffset": {"offsets": {"a": {"0": 10, "1": 5}}, "plan": []},
            "latestOffset": json.dumps({"offsets": {"a": {"0": 12, "1": 5}}}),
        }
    ],
}


def test_records_there_and_back() -> None:
    status = Status("p", "run-1", RUNNING, queries=[QueryStatus("q", rows=3, offsets={"t": {"0": 5}})])
    assert read(status_key("p"), write_status(status)) == status
    command = Command("p", "stop", "run-1", 5)
    assert read(command_key("p"), write_command(command)) == command


def test_records_of_others_and_of_the_future_are_ignored() -> None:
    body = json.loads(write_status(Status("p", "r")))
    newer = json.dumps({**body, "more": 1, "queries": [{"name": "q", "extra": True}]}).encode()
    found = read(status_key("p"), newer)
    assert isinstance(found, Status) and found.queries == [QueryStatus("q")]
    assert read(status_key("p"), json.dumps({**body, "version": 99}).encode()) is None
    for key, value in [
        (None, b"{}"),
        (b"x", b"{}"),
        (b"[]", b"[]"),
        (status_key("p"), b"no"),
        (status_key("p"), None),
    ]:
        assert read(key, value) is None


def test_a_status_is_believed_for_a_while() -> None:
    status = Status("p", "r", RUNNING, updated=1000)
    assert status.shown_state(2000) == RUNNING
    assert status.shown_state(60_000) == "lost"
    assert Status("p", "r", STOPPED, updated=1000).shown_state(60_000) == STOPPED


def test_progress_becomes_figures() -> None:
    status = QueryStatus("q")
    take_in(status, PROGRESS, 5)
    take_in(status, PROGRESS, 6)
    assert (status.batch, status.batch_ms, status.rows, status.updated) == (7, 250, 200, 6)
    assert (status.input_rate, status.process_rate) == (50.0, 0.0)
    assert (status.state_rows, status.state_bytes, status.late_rows) == (3, 2048, 4)
    assert (status.lag, status.offsets) == (2, {"a": {"0": 10, "1": 5}})
    take_in(
        status, {"batchId": 8, "numInputRows": 0, "batchDuration": 1, "sources": [{"endOffset": "junk"}]}, 7
    )
    assert (status.batch_ms, status.lag) == (250, 2)  # an idle trigger says nothing about either


def test_two_sources_with_the_same_topic() -> None:
    status = QueryStatus("q")
    sources = [{"endOffset": {"offsets": {"a": {"0": end}}}} for end in (10, 4, 7)]
    take_in(status, {"batchId": 1, "sources": sources}, 1)
    assert status.offsets == {"a": {"0": 4}}  # the one that is behind


def test_offsets_of_other_sources() -> None:
    assert offsets_in('{"t": {"0": 3}}') == {"t": {"0": 3}}  # Spark's Kafka source
    assert offsets_in("42") == {} and offsets_in(None) == {} and offsets_in({"rows": 3}) == {}
    assert lag_of({"t": {"0": 3}}, {("t", 0): 5, ("t", 1): 2}) == 4


def test_lines_and_rows() -> None:
    status = Status("p", "r", RUNNING, updated=10, last_error="boom", queries=[QueryStatus("q")])
    take_in(status.queries[0], PROGRESS, 5)
    text = line(status, status.queries[0])
    assert "p/q: batch 7" in text and "lag 2" in text and "state 3 rows, 2.0 KB" in text and "boom" in text
    assert rows(status, 20)[0][:4] == ["p", "q", RUNNING, "7"]
    out = io.StringIO()
    screen = Lines(out)
    screen.show([status])
    screen.show([status])  # nothing new
    assert out.getvalue().count("\n") == 1
    assert (size(10), size(3 * 1024**2)) == ("10 B", "3.0 MB")


def app(folder: Path, text: str) -> App:
    # A folder for each: the byte code of another text of the same size and second would be taken.
    path = folder / f"{zlib.crc32(text.encode())}" / "my-app.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return App(str(path))


SETTINGS = Settings("p", {"a": "1"}, "host:1", "http://r", "/tmp/c")  # noqa: S108 - a name only


def test_an_app_returns_one_or_several(tmp_path: Path) -> None:
    class Writer:
        def start(self) -> None: ...

    one = app(tmp_path, "def pipeline(spark, settings):\n    return spark")
    assert one.name == "my-app"
    writer = Writer()
    assert one.build(writer, SETTINGS) == {"p": writer}
    assert one.build([writer, writer], SETTINGS) == {"p-0": writer, "p-1": writer}
    assert one.build({"x": writer}, SETTINGS) == {"x": writer}
    assert app(tmp_path, "NAME = 'own'\ndef pipeline(spark, settings): ...").name == "own"


def test_an_app_returns_a_streams_application(tmp_path: Path) -> None:
    """As it is: the pipeline starts it on its own session."""
    returned = app(
        tmp_path,
        "from millstream.streams import Streams, StreamsBuilder\n"
        "def pipeline(spark, settings):\n"
        "    builder = StreamsBuilder()\n"
        "    builder.stream('in').to('out')\n"
        "    return Streams(builder.build(), 'app', state=settings.checkpoint)",
    ).build("the session", SETTINGS)["p"]
    assert isinstance(returned, StreamsWriter)
    assert (returned._streams.settings.application, returned._spark) == ("app", "the session")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", r"has no function pipeline\(spark, settings\)"),
        ("def pipeline(:", "my-app.py line 1: "),
        ("import nothing_like_it", "my-app.py line 1: ModuleNotFoundError: No module named"),
        ("NAME = '../x'\ndef pipeline(spark, settings): ...", "is not a name for a pipeline"),
    ],
)
def test_a_bad_app_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(PipelineError, match=message) as raised:
        app(tmp_path, text)
    assert "\n" not in raised.value.message


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return None", "must return writers or started queries, not NoneType"),
        ("return {}", "returned nothing to run"),
        ("return 1 / 0", "line 2: ZeroDivisionError: division by zero"),
        ("return settings['b']", "pipeline p needs a setting: --set b=..."),
    ],
)
def test_a_pipeline_that_cannot_be_built_is_one_line(tmp_path: Path, body: str, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        app(tmp_path, f"def pipeline(spark, settings):\n    {body}").build(None, SETTINGS)


def test_settings() -> None:
    assert (SETTINGS["a"], SETTINGS.get("b", "x"), dict(SETTINGS)) == ("1", "x", {"a": "1"})
    assert "b" not in SETTINGS and SETTINGS.kafka == {"kafka.bootstrap.servers": "host:1"}
    secured = Settings("p", {}, "host:1", "", "", {"kafka.security.protocol": "SSL"})
    assert secured.kafka == {"kafka.bootstrap.servers": "host:1", "kafka.security.protocol": "SSL"}


def test_reasons_out_of_spark() -> None:
    spark = Exception(
        "[PYTHON] An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
        '  File "x.py", line 1\nZeroDivisionError: division by zero\n\n\tat org.apache.spark.Foo(Foo.scala:1)'
    )
    assert reason(spark) == "ZeroDivisionError: division by zero"
    assert (
        reason(Exception("org.Foo: millstream: topic 'x' does not exist\n\tat java"))
        == "topic 'x' does not exist"
    )
    assert reason(ValueError("plain")) == "ValueError: plain"


def test_java_is_looked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "Java 17 or newer" in (java_problem() or "")
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_292\"' >&2\n")
    old.chmod(0o755)
    assert "is Java 8" in (java_problem() or "")
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "no java on the PATH" in (java_problem() or "")
