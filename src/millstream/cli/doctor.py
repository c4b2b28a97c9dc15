"""`millstream doctor`: is this machine fit for the platform? Each problem comes with its cure."""

import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millstream import __version__
from millstream.cli import shared_options
from millstream.cli.doctor_finding import GOOD, PROBLEM, WARNING, Finding
from millstream.cli.doctor_security import security
from millstream.cli.output import Report, check_style, emit
from millstream.cli.up import DataDir

if TYPE_CHECKING:
    from millstream.up.data_folders import DataFolder

OLDEST_PYTHON = (3, 11)
OLDEST_JAVA = 17
FEW_FILES = 4_096
MANY_FILES = 100_000
LITTLE_DISK = 1 << 30
ENOUGH_DISK = 10 << 30
LITTLE_MEMORY = 1 << 30


def command(
    data_dir: DataDir = "",
    port_base: Annotated[
        int | None, typer.Option(metavar="PORT", help="Check the ports of `millstream up --port-base PORT`.")
    ] = None,
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="STYLE", help="table, json or yaml.")
    ] = "table",
    version: shared_options.Version = False,
) -> int:
    """Check Python, packages, Java, ports, disk, file limits, memory, and what `up --secure` has made, with a
    cure for each problem.

    Exit codes: 0 nothing is in the way (warnings are about comfort), 1 something is.
    """
    if version:
        return shared_options.show_version()
    style = check_style(output)
    from millstream.up.data_folders import DataFolder, default_data_dir

    home = DataFolder(Path(data_dir) if data_dir else default_data_dir())
    findings = [*examine(home, port_base)]
    rows = [[mark(one.state), one.what, one.found] for one in findings]
    data = [one._asdict() for one in findings]
    emit(Report((), data, ["", "What", "Found"], rows), "table" if style == "lines" else style)
    bad = [one for one in findings if one.state == PROBLEM]
    if style in ("table", "lines"):
        for one in findings:
            if one.cure:
                print(f"\n{one.state.capitalize()}: {one.what}: {one.found}\n  Cure: {one.cure}")
        count = f"{len(bad)} problem{'s' if len(bad) != 1 else ''}" if bad else "Nothing is in the way"
        print(f"\n{count}.")
    return 1 if bad else 0


def mark(state: str) -> str:
    return {GOOD: "ok", WARNING: "!", PROBLEM: "X"}[state]


def examine(home: "DataFolder", port_base: int | None) -> Iterator[Finding]:
    yield versions()
    yield python()
    yield from packages()
    yield java()
    yield from spark_python()
    yield from folder(home)
    yield files()
    yield memory()
    yield from ports(home, port_base)
    yield from security(home)


def versions() -> Finding:
    where = Path(__file__).resolve().parents[1]
    return Finding("Millstream", GOOD, f"{__version__} in {where}")


def python() -> Finding:
    found = (
        f"{platform.python_version()} ({platform.python_implementation()}, {platform.system()} "
        f"{platform.release()})"
    )
    if sys.version_info < OLDEST_PYTHON:
        return Finding("Python", PROBLEM, found, "install Python 3.11 or newer, and Millstream into it")
    return Finding("Python", GOOD, found)


def packages() -> Iterator[Finding]:
    """What the parts of the platform need, and the extra it comes with."""
    for what, modules, extra in (
        ("Broker and tools", ("uvloop", "kio", "crc32c", "cramjam", "re2", "typer", "rich", "yaml"), ""),
        (
            "Registry and REST",
            ("fastapi", "uvicorn", "fastavro", "jsonschema", "confluent_kafka"),
            "services",
        ),
        ("Pipelines", ("pyspark", "pyarrow"), "pipelines"),
    ):
        missing = [name for name in modules if importlib.util.find_spec(name) is None]
        if not missing:
            shown = ", ".join(filter(None, map(version_of, modules)))
            yield Finding(what, GOOD, shown)
            continue
        cure = f"pip install 'millstream[{extra}]'" if extra else "pip install --force-reinstall millstream"
        yield Finding(what, WARNING if extra else PROBLEM, f"not installed: {', '.join(missing)}", cure)


def version_of(module: str) -> str:
    names = {"re2": "google-re2", "yaml": "PyYAML", "confluent_kafka": "confluent-kafka"}
    try:
        return f"{module} {importlib.metadata.version(names.get(module, module))}"
    except importlib.metadata.PackageNotFoundError:
        return module


def spark_python() -> Iterator[Finding]:
    """Spark starts its Python processes as `python3`, whatever that is on the PATH. In a session that is not
    ours nothing of this package runs before that fails, so it can only be said here and in the docs."""
    if importlib.util.find_spec("pyspark") is None:
        return
    named = os.environ.get("PYSPARK_PYTHON")
    program = shutil.which(named or "python3")
    found = f"{f'PYSPARK_PYTHON={named}' if named else 'python3 on the PATH'}: {program or 'not found'}"
    if program is not None and is_this_python(program):
        yield Finding("Spark's Python", GOOD, found)
        return
    cure = (
        f"export PYSPARK_PYTHON={sys.executable}, or activate the environment; sessions of "
        "millstream.spark.session and pipelines do not need it"
    )
    yield Finding("Spark's Python", WARNING, f"{found}, which is not this Python", cure)


def is_this_python(program: str) -> bool:
    """Whether it has the packages of this one: a virtual environment is recognised by its folder, since the
    program in it is a link."""
    folder = Path(program).parent.absolute()
    return (
        folder == Path(sys.executable).parent.absolute()
        or folder.resolve() == Path(sys.prefix, "bin").resolve()
    )


def java() -> Finding:
    cure = (
        f"install Java {OLDEST_JAVA} or newer, or set JAVA_HOME; only pipelines (Spark) and several brokers "
        "(ZooKeeper) need it"
    )
    home = os.environ.get("JAVA_HOME")
    program = shutil.which("java", path=os.path.join(home, "bin")) if home else shutil.which("java")
    if program is None:
        where = f"JAVA_HOME={home} has no bin/java" if home else "not found"
        return Finding("Java", WARNING, where, cure)
    try:
        done = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("Java", WARNING, f"{program} does not run: {error}", cure)
    match = re.search(r'version "(\d+)(?:\.(\d+))?[^"]*"', done.stderr + done.stdout)
    if match is None:
        return Finding("Java", WARNING, f"{program} does not tell its version", cure)
    major = int(match[2]) if match[1] == "1" and match[2] else int(match[1])
    if major < OLDEST_JAVA:
        return Finding("Java", WARNING, f"{program} is version {major}", cure)
    return Finding("Java", GOOD, f"{match[0].split(chr(34))[1]} at {program}")


def folder(home: "DataFolder") -> Iterator[Finding]:
    """The data folder: may we write there, and how much room is there?"""
    there = home.path
    while not there.exists():
        there = there.parent
    if not os.access(there, os.W_OK | os.X_OK) or not there.is_dir():
        cure = f"choose another by --data-dir FOLDER, or make it yours: sudo chown $USER {there}"
        yield Finding("Data folder", PROBLEM, f"{home.path}: cannot be written", cure)
        return
    yield Finding("Data folder", GOOD, f"{home.path}{'' if home.path.exists() else ' (will be made)'}")
    free = shutil.disk_usage(there).free
    text = f"{free / (1 << 30):.1f} GiB free at {there}"
    cure = "make room, put the data elsewhere (--data-dir), or keep less: retention.ms, retention.bytes"
    state = PROBLEM if free < LITTLE_DISK else WARNING if free < ENOUGH_DISK else GOOD
    yield Finding("Disk", state, text, cure if state != GOOD else "")


def files() -> Finding:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = f"{_limit(soft)} (may be raised to {_limit(hard)})"
    if soft != resource.RLIM_INFINITY and soft < FEW_FILES:
        cure = (
            f"ulimit -n {_limit(hard)} before starting; for a service LimitNOFILE=100000 in its systemd "
            f"unit, or "
            "`* - nofile 100000` in /etc/security/limits.conf"
        )
        return Finding("Open files", WARNING, found, cure)
    return Finding("Open files", GOOD, found)


def _limit(number: int) -> str:
    return "unlimited" if number < 0 or number >= 1 << 60 else str(number)


def memory() -> Finding:
    try:
        text = Path("/proc/meminfo").read_text()
        free = int(text.partition("MemAvailable:")[2].split()[0]) * 1024
    except (OSError, ValueError, IndexError):
        return Finding("Memory", GOOD, "not known on this system")
    found = f"{free / (1 << 30):.1f} GiB available, {os.cpu_count()} cores"
    if free < LITTLE_MEMORY:
        return Finding("Memory", WARNING, found, "end other programs; Spark alone wants 1 GiB and more")
    return Finding("Memory", GOOD, found)


def ports(home: "DataFolder", port_base: int | None) -> Iterator[Finding]:
    """The ports that `up` would take. Those of an `up` that runs are its own."""
    from millstream.up.data_folders import NotRunning
    from millstream.up.ports import port_problem
    from millstream.up.several_brokers import CannotChange, Size, remembered, table

    try:
        instance = home.instance()
    except NotRunning:
        pass
    else:
        shown = ", ".join(f"{one.name} {one.address}" for one in instance.services)
        yield Finding("Ports", GOOD, f"in use by `millstream up`, process {instance.pid}: {shown}")
        return
    busy: Callable[[int], str | None] = lambda port: port_problem("127.0.0.1", port)  # noqa: E731
    try:
        size = remembered(home.path)
    except CannotChange as error:
        yield Finding(
            "Brokers", PROBLEM, str(error), f"write the number of brokers into {home.path}/cluster.json"
        )
        size = Size()
    if size.zookeepers:
        yield Finding(
            "Brokers", GOOD, f"{size.brokers} brokers and {size.zookeepers} ZooKeeper in {home.path}"
        )
    for service in table(size).values():
        port = service.port if port_base is None else port_base + service.offset
        reason = busy(port) if 0 < port < 65536 else f"port {port} does not exist"
        if reason is None:
            yield Finding(f"Port {port}", GOOD, f"free for the {service.display_name}")
        else:
            cure = "stop that process, or choose other ports: millstream up --port-base 19090"
            yield Finding(f"Port {port}", PROBLEM, f"{reason}; the {service.display_name} wants it", cure)
