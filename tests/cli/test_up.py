"""`millstream up`, `down`, `status` and `logs`, as a user runs them: real processes on free ports."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream.up.data_folders import DataFolder, NotRunning, find, running
from millstream.up.service_settings import setting_problem
from millstream.up.services import SERVICES
from millstream.up.supervisor import CannotStart, choose
from tests.support.waiting import wait_until

from .conftest import PROGRAM, Run

PATIENCE = 60.0


class Up:
    """A `millstream up` in a process of its own."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.home = DataFolder(folder)
        self.process = subprocess.Popen(
            [*PROGRAM, "up", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )

    def ready(self) -> "Up":
        wait_until(lambda: self.process.poll() is not None or self._says_ready())
        assert self.process.poll() is None, self.process.communicate()
        return self

    def _says_ready(self) -> bool:
        try:
            return self.home.instance().ready
        except NotRunning:
            return False

    def service(self, name: str) -> Any:
        return next(one for one in self.home.instance().services if one.name == name)

    def stop(self, number: int = signal.SIGINT) -> tuple[int, str, str]:
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out, err


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Callable[..., Up]]:
    made: list[Up] = []

    def start(*words: str, name: str = "data") -> Up:
        folder = tmp_path / name
        found = Up(folder, "--data-dir", str(folder), "--port-base", "0", *words)
        made.append(found)
        return found

    yield start
    for one in made:
        if one.process.poll() is None:
            one.process.terminate()
        one.process.communicate(timeout=PATIENCE)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_day_with_a_broker(up, run: Run, tmp_path: Path) -> None:
    first = up("--only", "broker").ready()
    folder = str(tmp_path / "data")
    broker = first.service("broker")

    done = run("status", "--data-dir", folder)
    assert done.code == 0
    assert broker.address in done.out
    facts = json.loads(run("status", "-o", "json").out)  # found without being told where
    assert facts["running"] is True
    assert [one["name"] for one in facts["services"]] == ["broker"]
    assert facts["services"][0]["pid"] == broker.pid

    assert run("-p", "up", "topics", "--create", "--topic", "orders").out == "Created topic orders.\n"
    assert run("-p", "up", "topics", "--list").out == "orders\n"

    again = subprocess.run(
        [*PROGRAM, "up", "--data-dir", folder], capture_output=True, text=True, timeout=PATIENCE
    )
    assert again.returncode == 1
    assert f"runs already in {folder}" in again.stderr
    assert broker.address in again.stdout
    assert first.service("broker").pid == broker.pid
    assert alive(broker.pid)

    assert "ready node.id" in run("logs", "broker", "-n", "1").out
    assert run("logs", "nobody").err.startswith("there is no log of 'nobody'; there are broker")

    assert run("down").out.startswith("Stopped broker (")
    out, err = first.process.communicate(timeout=PATIENCE)
    assert first.process.returncode == 0
    assert re.search(
        r"^broker +127\.0\.0\.1:\d+ +Kafka protocol; http://127\.0\.0\.1:\d+/metrics$", out, re.MULTILINE
    )
    assert re.search(r"^Ready in [\d.]+ s\.", out, re.MULTILINE)
    assert err.endswith("stopped\n")
    assert not alive(broker.pid)
    assert run("status").code == 3
    assert run("down").code == 0
    assert "ready node.id" in run("logs", "-n", "0", "--data-dir", folder).out


def test_a_service_that_dies_is_started_again_on_its_port(up) -> None:
    one = up("--only", "broker").ready()
    before = one.service("broker")
    os.kill(before.pid, signal.SIGKILL)
    wait_until(lambda: one.service("broker").restarts == 1 and one.service("broker").state == "ready")
    after = one.service("broker")
    assert after.address == before.address
    assert after.last_end == "signal SIGKILL"
    code, _, err = one.stop(signal.SIGTERM)
    assert code == 0
    assert "the broker ended with signal SIGKILL; starting it again in 0.5 s" in err
    assert "the broker is ready again" in err


def test_services_end_with_a_supervisor_that_is_killed(up) -> None:
    one = up("--only", "broker,registry").ready()
    pids = [one.service("broker").pid, one.service("registry").pid]
    one.process.kill()
    one.process.wait(PATIENCE)
    wait_until(lambda: not any(map(alive, pids)))
    assert not one.home.in_use()
    log = one.home.log_of("broker").read_text() + one.home.log_of("registry").read_text()
    assert up("--only", "broker").ready()  # and the folder can be used again
    assert "Traceback" not in log


@pytest.mark.timeout(240)
def test_all_services(up, run: Run) -> None:
    import httpx

    one = up().ready()
    states = {service.name: service for service in one.home.instance().services}
    assert list(states) == [name for name, service in SERVICES.items() if service.default]
    schema = {"schema": '{"type": "string"}'}
    answer = httpx.post(
        f"{states['registry'].address}/subjects/words-value/versions", json=schema, timeout=30
    )
    assert answer.json()["id"] == 1
    assert httpx.get(f"{states['rest'].address}/topics", timeout=30).json() == ["_schemas"]
    assert httpx.get(states["console"].address, timeout=30, follow_redirects=True).status_code == 200
    check_metrics(states["console"].address, list(states))
    code, out, _ = one.stop()
    assert code == 0
    for state in states.values():
        assert state.address in out
        assert not alive(state.pid)


def check_metrics(console: str, services: list[str]) -> None:
    """The console shows those of all services, and the dashboard asks for nothing that is not there."""
    import httpx

    page = httpx.get(f"{console}/services", timeout=30).text
    assert page.count('<span class="badge good">up</span>') == len(services)
    together = httpx.get(f"{console}/metrics/all", timeout=30).text
    reported = set(re.findall(r"^# TYPE (\w+) ", together, re.MULTILINE))
    for name in services:
        assert f'millstream_service_up{{service="{name}"}} 1' in together
        assert re.search(rf'^process_cpu_seconds_total{{service="{name}"}} [\d.]+$', together, re.MULTILINE)
    dashboard = json.loads((Path(__file__).parents[2] / "docs" / "grafana-dashboard.json").read_text())
    targets = [target for panel in dashboard["panels"] for target in panel.get("targets", [])]
    asked = {
        name
        for target in targets
        for name in re.findall(r"\b(?:kafka|millstream|process)_\w+", target["expr"])
    }
    assert {name.removesuffix("_bucket") for name in asked} <= reported
    counted = r'^millstream_http_requests_total\{(?=[^}]*route="/topics")(?=[^}]*service="rest")'
    assert re.search(counted, together, re.MULTILINE)


def test_a_port_in_use_is_said_clearly(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        words = ["up", "--data-dir", str(tmp_path), "--only", "broker", "--port-base", str(port)]
        done = subprocess.run([*PROGRAM, *words], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"the broker cannot have its port: port {port} is in use" in done.stderr
    if sys.platform == "linux":
        assert f"by process {os.getpid()} (" in done.stderr
    assert "--port-base" in done.stderr
    assert not DataFolder(tmp_path).in_use()


def test_a_service_that_cannot_start_shows_its_words(tmp_path: Path) -> None:
    words = ["--data-dir", str(tmp_path), "--only", "broker", "--set", "broker.num.partitions=many"]
    done = subprocess.run(
        [*PROGRAM, "up", "--port-base", "0", *words], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 1
    assert "the broker ended with code 2 before it was ready; its last lines:" in done.stderr
    assert "num.partitions" in done.stderr
    assert "Traceback" not in done.stderr


def test_in_the_background_and_nothing_is_kept(run: Run) -> None:
    words = ["--ephemeral", "--only", "broker", "--port-base", "0", "--detach"]
    done = subprocess.run([*PROGRAM, "up", *words], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert "kept nowhere (--ephemeral)" in done.stdout
    instance = find("").instance()
    assert instance.ephemeral
    assert Path(instance.data_dir).is_dir()
    assert run("down").code == 0
    wait_until(lambda: not Path(instance.data_dir).exists())
    assert running() == []


def test_two_at_once(up, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is done to one of them by chance, and every message says how to name one."""
    first, second = up("--only", "broker", name="a"), up("--only", "broker", name="b")
    one, two = first.ready().service("broker").address, second.ready().service("broker").address
    a, b = tmp_path / "a", tmp_path / "b"

    done = run("status")
    assert done.code == 0
    assert all(text in done.out for text in (f"{a}, process ", f"{b}, process ", one, two))
    both = json.loads(run("status", "-o", "json").out)
    assert {facts["data_dir"] for facts in both} == {str(a), str(b)}

    listed = (f"  {a} (process {first.process.pid}: broker {one})", f"  {b} (process {second.process.pid}: ")
    for words, says in (
        (("down",), "name one with --data-dir FOLDER, or stop them with --all:"),
        (("logs",), "name one with --data-dir FOLDER:"),
        (("-p", "up", "topics", "--list"), "name one by MILLSTREAM_DATA_DIR=FOLDER in the environment:"),
    ):
        done = run(*words)
        assert (done.code, done.out) == (1, "")
        assert done.err.startswith(f"`up` runs more than once; {says}\n")
        assert all(line in done.err for line in listed)
    assert first.process.poll() is None
    assert second.process.poll() is None

    again = subprocess.run(
        [*PROGRAM, "up", "--data-dir", str(a)], capture_output=True, text=True, timeout=PATIENCE
    )
    assert f"`millstream down --data-dir {a}` stops it" in again.stderr

    with monkeypatch.context() as changed:
        changed.setenv("MILLSTREAM_DATA_DIR", str(b))
        assert run("-p", "up", "topics", "--create", "--topic", "of-b").code == 0
        assert json.loads(run("status", "-o", "json").out)["data_dir"] == str(b)
    assert run("topics", "--list", "--bootstrap-server", one).out == ""
    assert run("topics", "--list", "--bootstrap-server", two).out == "of-b\n"

    assert run("down", "--data-dir", str(b)).out == f"Stopped broker ({b}).\n"
    second.process.communicate(timeout=PATIENCE)
    assert run("-p", "up", "topics", "--list").code == 0  # the one that is left
    third = up("--only", "broker", name="b").ready()
    assert third.process.stdout is not None
    out = ""
    while "shows the logs" not in out:  # said after it is ready, and while the other one runs
        out += third.process.stdout.readline()
    done = run("down", "--all")
    assert sorted(done.out.splitlines()) == [f"Stopped broker ({a}).", f"Stopped broker ({b})."]
    third.process.wait(PATIENCE)
    assert f"`MILLSTREAM_DATA_DIR={b} millstream -p up topics --list`" in out
    assert f"`millstream logs -f --data-dir {b}`" in out
    assert run("down", "--all").code == 0
    assert run("down", "--all", "--data-dir", str(a)).code == 2


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["--set", "broker.num.partition=3"],
            "the broker has no setting 'num.partition'; did you mean 'num.",
        ),
        (
            ["--set", "registry.kafkastore.topik=x"],
            "has no setting 'kafkastore.topik'; did you mean 'kafkasto",
        ),
        (["--set", "rest.consumer.fetch.min.byte=1"], "did you mean 'consumer.fetch.min.bytes'?"),
        (["--set", "console.listner=x"], "the console has no setting 'listner'; did you mean 'listeners'?"),
        (["--only", "brokr"], "there is no service 'brokr'; there are broker, registry"),
        (["--ephemeral", "--data-dir", "x"], "use one of them"),
        (["--port-base", "70000"], "ports are numbers from 1 to 65535"),
        (["--set", "num.partitions"], "SERVICE.NAME=VALUE"),
        (["--set", "web.port=3"], "'web' is not among the services to start"),
    ],
)
def test_misuse(run: Run, words: list[str], says: str) -> None:
    done = run("up", *words)
    assert (done.code, done.out) == (2, "")
    assert says in done.err


def test_a_folder_that_cannot_be_used(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run("up", "--data-dir", str(tmp_path / "file" / "data"))
    assert done.code == 1
    assert "cannot use" in done.err


@pytest.mark.parametrize(
    ("service", "name"),
    [
        ("broker", "listener.name.external.ssl.keystore.location"),
        # Kafka's; the broker's log says that it has no effect.
        ("broker", "process.roles"),
        # librdkafka's.
        ("rest", "consumer.socket.timeout.ms"),
        ("registry", "kafkastore.sasl.jaas.config"),
    ],
)
def test_settings_that_are_no_typos(service: str, name: str) -> None:
    assert setting_problem(SERVICES[service], name) == ""


def test_choosing_services() -> None:
    assert [service.name for service in choose([], [])] == [s.name for s in SERVICES.values() if s.default]
    assert [service.name for service in choose(["registry"], [])] == ["registry"]
    assert [service.name for service in choose(["registry"], ["broker"])] == ["broker", "registry"]
    with pytest.raises(CannotStart):
        choose([], ["nobody"])
    offsets = [service.offset for service in SERVICES.values()]
    offsets += [service.metrics_port[1] for service in SERVICES.values() if service.metrics_port]
    assert len(set(offsets)) == len(offsets)


def test_status_of_nothing(run: Run) -> None:
    done = run("status", "-o", "json")
    assert (done.code, json.loads(done.out)) == (3, {"running": False})


def test_the_demo(run: Run) -> None:
    words = [*PROGRAM, "demo", "--only", "broker", "--port-base", "0", "--rate", "200"]
    demo = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0)
    try:
        wait_until(lambda: demo.poll() is not None or running())
        assert demo.poll() is None, demo.communicate()
        wait_until(lambda: "bikes.alerts" in run("-p", "up", "topics", "--list").out.splitlines())
        done = run(
            "-p",
            "up",
            "console-consumer",
            "--topic",
            "bikes.readings",
            "--from-beginning",
            "--max-messages",
            "3",
            "--where",
            "exists(value.temperature)",
            "--timeout-ms",
            "20000",
        )
        assert [json.loads(line).keys() >= {"bike", "stage"} for line in done.out.splitlines()] == [True] * 3
    finally:
        demo.send_signal(signal.SIGINT)
        out, err = demo.communicate(timeout=PATIENCE)
    assert demo.returncode == 0, err
    assert "Data flows into the topics" in out


def test_avro_by_the_registry_of_the_profile(up, run: Run) -> None:
    up("--only", "broker,registry").ready()
    schema = '{"type": "record", "name": "Alert", "fields": [{"name": "level", "type": "string"}]}'
    words = ["--topic", "avro", "--value-format", "avro", "--reader-property", f"value.schema={schema}"]
    sent = run("-p", "up", "console-producer", *words, stdin='{"level": "INFO"}\n{"level": "CRITICAL"}\n')
    assert sent.code == 0, sent.err
    words = ["--topic", "avro", "--value-format", "avro", "--from-beginning", "--max-messages", "1"]
    words += ["--timeout-ms", "20000", "--where", 'value.level == "CRITICAL"']
    assert json.loads(run("-p", "up", "console-consumer", *words).out) == {"level": "CRITICAL"}
