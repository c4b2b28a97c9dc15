"""Run Spark pipelines, see how they do, stop them.

`run` runs the function pipeline(spark, settings) of a Python file until it is stopped. The others read and
write the topic __millstream_pipelines, in which every running pipeline reports, so they work from any
machine.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli.cluster_access import key_values, read_client_properties
from millstream.cli.errors import CommandFailed, UsageError
from millstream.cli.output import print_json, print_table, print_yaml
from millstream.cli.shared_options import Bootstrap, CommandConfig

if TYPE_CHECKING:
    from millstream.client import ClientConfig
    from millstream.spark.runner.status_records import Status
    from millstream.spark.runner.status_topic import StatusTopic

STYLES = ("table", "json", "yaml")
DEFAULT_SERVERS = "127.0.0.1:9092"

Name = Annotated[str, typer.Argument(metavar="NAME", help="The pipeline.")]
Style = Annotated[str, typer.Option("-o", "--output", metavar="STYLE", help="table, json or yaml.")]


def run(
    apps: Annotated[
        list[str],
        typer.Argument(metavar="APP.PY...", help="Files with a function pipeline(spark, settings)."),
    ],
    bootstrap_server: Bootstrap = "",
    command_config: CommandConfig = "",
    registry: Annotated[
        str,
        typer.Option(metavar="URL", help="The Schema Registry, as settings.registry.", show_default=False),
    ] = "",
    name: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="The pipeline's name; the file's name otherwise.", show_default=False
        ),
    ] = "",
    checkpoint: Annotated[
        str,
        typer.Option(
            metavar="FOLDER",
            help="Where each pipeline has its folder; ~/.millstream/pipelines.",
            show_default=False,
        ),
    ] = "",
    master: Annotated[
        str,
        typer.Option(metavar="MASTER", help="Spark's master (this machine).", show_default=False),
    ] = "",
    values: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting for the pipeline; can be repeated."),
    ] = None,
    conf: Annotated[
        list[str] | None,
        typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark; can be repeated."),
    ] = None,
    restarts: Annotated[int, typer.Option(metavar="N", help="How often to start again after a failure.")] = 3,
    available_now: Annotated[
        bool, typer.Option("--available-now", help="Process what is there, then end.")
    ] = False,
    grace: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long a stop waits for a batch to end.")
    ] = 30.0,
) -> int:
    """Run pipelines until they are stopped (Ctrl-C, SIGTERM, or `millstream pipeline stop`)."""
    servers, client, known_registry = _cluster(bootstrap_server, command_config)
    return _run(
        apps=apps,
        bootstrap_servers=servers,
        client=client,
        registry=registry or known_registry,
        name=name,
        checkpoint=checkpoint,
        master=master or None,
        values=key_values(values or []),
        spark=key_values(conf or []),
        restarts=restarts,
        available_now=available_now,
        grace=grace,
    )


def list_all(
    bootstrap_server: Bootstrap = "", command_config: CommandConfig = "", output: Style = "table"
) -> int:
    """All pipelines and their progress."""
    _check_style(output)
    with _status_topic(bootstrap_server, command_config) as status_topic:
        return _list(status_topic, output)


def describe(
    name: Name, bootstrap_server: Bootstrap = "", command_config: CommandConfig = "", output: Style = "table"
) -> int:
    """Everything about one pipeline."""
    _check_style(output)
    with _status_topic(bootstrap_server, command_config) as status_topic:
        return _describe(_known(status_topic, name), output)


def stop(
    name: Name,
    bootstrap_server: Bootstrap = "",
    command_config: CommandConfig = "",
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long to wait until it has stopped.")
    ] = 60.0,
) -> int:
    """Ask a pipeline to finish its batches and stop, and wait until it has."""
    with _status_topic(bootstrap_server, command_config) as status_topic:
        return _stop(status_topic, _known(status_topic, name), timeout)


def forget(name: Name, bootstrap_server: Bootstrap = "", command_config: CommandConfig = "") -> int:
    """Remove a pipeline that has ended from the list. Its checkpoint stays."""
    with _status_topic(bootstrap_server, command_config) as status_topic:
        return _forget(status_topic, _known(status_topic, name))


def package(
    target: Annotated[str, typer.Argument(metavar="ARCHIVE", help="The file: .tar.gz, .tgz or .tar.")],
    extra: Annotated[
        list[str] | None,
        typer.Option(
            "--with", metavar="PACKAGE", help="A further package of this environment; can be repeated."
        ),
    ] = None,
) -> int:
    """Write what Spark's executors need into one archive, for spark.archives=ARCHIVE#millstream."""
    from pathlib import Path

    from millstream.spark.errors import PipelineError
    from millstream.spark.package import NAME, write_package

    path = Path(target)
    try:
        names = write_package(path, extra or [])
    except PipelineError as error:
        raise CommandFailed(error.message) from None
    print(f"{path} has {len(names)} packages, {path.stat().st_size / 1e6:.0f} MB.")
    print(f"Use it with --conf spark.archives={path}#{NAME}")
    return 0


SUBCOMMANDS: dict[str, Callable[..., int]] = {
    "run": run,
    "list": list_all,
    "describe": describe,
    "stop": stop,
    "forget": forget,
    "package": package,
}


def _cluster(servers: str, command_config: str) -> "tuple[str, ClientConfig, str]":
    """Brokers, how to reach them, and the registry if a profile knows it."""
    from millstream.cli.profile_store import REGISTRY, SERVERS, with_profile
    from millstream.client import ClientConfig

    properties = with_profile(servers, read_client_properties(command_config))
    chosen = servers or properties.get(SERVERS, DEFAULT_SERVERS)
    try:
        return (
            chosen,
            ClientConfig.of(chosen, properties, "millstream-pipeline"),
            properties.get(REGISTRY, ""),
        )
    except ValueError as error:
        raise UsageError(str(error)) from None


def _status_topic(servers: str, command_config: str) -> "StatusTopic":
    from millstream.spark.runner.status_topic import StatusTopic

    return StatusTopic(_cluster(servers, command_config)[1])


def _known(status_topic: "StatusTopic", name: str) -> "Status":
    status = status_topic.read_all().get(name)
    if status is None:
        raise CommandFailed(f"there is no pipeline {name}; see millstream pipeline list")
    return status


def _check_style(output: str) -> None:
    if output not in STYLES:
        raise UsageError(f"-o {output}: use one of {', '.join(STYLES)}")


def _run(**given: Any) -> int:
    try:
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError as error:
        raise CommandFailed(
            f"pipelines need Spark ({error.name} is missing): pip install 'millstream[pipelines]'"
        ) from None
    from millstream.spark.errors import PipelineError
    from millstream.spark.runner.run import Options, run

    try:
        return run(Options(**given))
    except PipelineError as error:
        raise CommandFailed(error.message) from None


def _list(status_topic: "StatusTopic", output: str) -> int:
    from dataclasses import asdict

    from millstream.spark.runner.screen import COLUMNS, rows

    found = sorted(status_topic.read_all().values(), key=lambda status: status.pipeline)
    now = _now()
    if output == "table":
        print_table(COLUMNS, [row for status in found for row in rows(status, now)])
    else:
        data = [{**asdict(status), "state": status.shown_state(now)} for status in found]
        (print_json if output == "json" else print_yaml)(data)
    return 0


def _describe(status: "Status", output: str) -> int:
    from dataclasses import asdict

    from millstream.spark.runner.screen import COLUMNS, rows

    now = _now()
    data = {**asdict(status), "state": status.shown_state(now)}
    if output != "table":
        (print_json if output == "json" else print_yaml)(data)
        return 0
    facts = {
        "pipeline": status.pipeline,
        "state": data["state"],
        "app": status.app,
        "process": f"{status.pid} on {status.host}",
        "master": status.master,
        "checkpoint": status.checkpoint,
        "started": _time(status.started),
        "last report": _time(status.updated),
        "restarts": status.restarts,
        "last error": status.last_error or "none",
    }
    for name, value in facts.items():
        print(f"{name:<12} {value}")
    print()
    print_table(COLUMNS[1:-1], [row[1:-1] for row in rows(status, now)])
    for query in status.queries:
        for topic, parts in query.offsets.items():
            offsets = ", ".join(f"{partition}: {offset:,}" for partition, offset in parts.items())
            print(f"{query.name} reads {topic} next at {offsets}")
        if query.watermark:
            print(f"{query.name} watermark {query.watermark}, {query.late_rows:,} rows came too late")
    return 0


def _stop(status_topic: "StatusTopic", status: "Status", timeout: float) -> int:
    from millstream.spark.runner.status_records import ENDED, Command, Status

    state = status.shown_state(_now())
    if state in ENDED:
        print(f"Pipeline {status.pipeline} does not run: it is {state}.")
        return 0
    if state == "lost":
        raise CommandFailed(
            f"pipeline {status.pipeline} has not been heard of since {_time(status.updated)} (process "
            f"{status.pid} on "
            f"{status.host}): it was killed, or its brokers are away"
        )
    status_topic.send(Command(status.pipeline, "stop", status.run, _now()))
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        for about in status_topic.poll(500):
            if isinstance(about, Status) and about.run == status.run and about.state in ENDED:
                print(f"Pipeline {status.pipeline} {about.state}.")
                return 0
    raise CommandFailed(f"pipeline {status.pipeline} has not stopped after {timeout:.0f} s; it was asked to")


def _forget(status_topic: "StatusTopic", status: "Status") -> int:
    from millstream.spark.runner.status_records import ENDED

    if status.shown_state(_now()) not in (*ENDED, "lost"):
        raise CommandFailed(f"pipeline {status.pipeline} is {status.state}; stop it first")
    status_topic.forget(status.pipeline)
    print(f"Pipeline {status.pipeline} forgotten. Its checkpoint {status.checkpoint} is still there.")
    return 0


def _now() -> int:
    return round(time.time() * 1000)


def _time(moment: int) -> str:
    return datetime.fromtimestamp(moment / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
