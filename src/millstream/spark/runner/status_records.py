"""The records of `__millstream_pipelines`, a compacted topic of one partition. Keys and values are JSON.

    key {"type": "status", "pipeline": NAME}    value: a Status, the newest state of that pipeline
    key {"type": "command", "pipeline": NAME}   value: {"command": "stop", "run": RUN, "time": ms}

A status is written when a pipeline starts, when its state changes, after batches (at most every second) and
at least every HEARTBEAT seconds; one that says it runs and is older than LOST seconds belongs to a process
that is gone. Times are milliseconds since 1970. Readers ignore fields that they do not know; `version` rises
when a field changes its meaning.
"""

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any

TOPIC = "__millstream_pipelines"
VERSION = 1
HEARTBEAT = 5.0
LOST = 20.0

STARTING, RUNNING, STOPPING = "starting", "running", "stopping"
STOPPED, FINISHED, FAILED = "stopped", "finished", "failed"
ENDED = frozenset({STOPPED, FINISHED, FAILED})


@dataclass
class QueryStatus:
    """One Spark query of a pipeline. Rates are rows per second, as Spark reports them for the last batch."""

    name: str
    state: str = STARTING
    batch: int = -1
    batch_ms: int = 0
    rows: int = 0  # read since this run began
    input_rate: float = 0.0
    process_rate: float = 0.0
    lag: int | None = None  # records not yet read
    offsets: dict[str, dict[str, int]] = field(default_factory=dict)  # topic: partition: next offset to read
    state_rows: int = 0
    state_bytes: int = 0
    late_rows: int = 0  # dropped because they came after the watermark
    watermark: str | None = None
    updated: int = 0  # when its last batch ended


@dataclass
class Status:
    pipeline: str
    run: str  # a new one for each start
    state: str = STARTING
    app: str = ""
    host: str = ""
    pid: int = 0
    master: str = ""
    checkpoint: str = ""
    started: int = 0
    updated: int = 0
    restarts: int = 0
    last_error: str | None = None  # kept after a restart
    queries: list[QueryStatus] = field(default_factory=list)
    version: int = VERSION

    def shown_state(self, now_ms: int) -> str:
        """The state as far as it can still be believed."""
        if self.state not in ENDED and now_ms - self.updated > LOST * 1000:
            return "lost"
        return self.state


@dataclass(frozen=True)
class Command:
    pipeline: str
    command: str
    run: str
    time: int


def status_key(pipeline: str) -> bytes:
    return _key("status", pipeline)


def command_key(pipeline: str) -> bytes:
    return _key("command", pipeline)


def _key(record_type: str, pipeline: str) -> bytes:
    return json.dumps({"type": record_type, "pipeline": pipeline}, separators=(",", ":")).encode()


def write_status(status: Status) -> bytes:
    return json.dumps(asdict(status), separators=(",", ":")).encode()


def write_command(command: Command) -> bytes:
    body = {"command": command.command, "run": command.run, "time": command.time}
    return json.dumps(body, separators=(",", ":")).encode()


def read(key: bytes | None, value: bytes | None) -> Status | Command | None:
    """A record of the topic, or None for one that is not understood (somebody else's, or from the future)."""
    if not key or not value:
        return None
    try:
        about, body = json.loads(key), json.loads(value)
        record_type, pipeline = about["type"], str(about["pipeline"])
        if record_type == "command":
            return Command(pipeline, str(body["command"]), str(body["run"]), int(body["time"]))
        if record_type != "status" or int(body.get("version", 0)) > VERSION:
            return None
        queries = [QueryStatus(**_known(QueryStatus, one)) for one in body.pop("queries", [])]
        return Status(**{**_known(Status, body), "queries": queries})
    except (ValueError, KeyError, TypeError):
        return None


def _known(cls: Any, body: dict[str, Any]) -> dict[str, Any]:
    names = {one.name for one in fields(cls)}
    return {name: value for name, value in body.items() if name in names}
