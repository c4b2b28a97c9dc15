"""One process that runs pipelines: one SparkContext, a session per pipeline, until all have ended or been
stopped.

SIGTERM, SIGINT and a stop command in `__millstream_pipelines` mean the same: let the batches under way end,
stop, say so in the topic, exit with code 0. A second signal does not wait. Spark's own log goes to
`spark.log` in the checkpoint folder.
"""

import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import time
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from millstream.client import ClientConfig, Cluster
from millstream.spark.errors import PipelineError
from millstream.spark.lost import forget_lost, jvm_of, why_lost
from millstream.spark.runner.checkpoint import checkpoint_root, use_remote
from millstream.spark.runner.client_options import options_of
from millstream.spark.runner.java import java_problem
from millstream.spark.runner.lock import lock_folder
from millstream.spark.runner.pipeline_file import NAME, App, Settings, reason
from millstream.spark.runner.progress import lag_of
from millstream.spark.runner.screen import Screen, default_screen
from millstream.spark.runner.status_records import FAILED, HEARTBEAT, Command, Status
from millstream.spark.runner.status_topic import StatusTopic, create_status_topic
from millstream.spark.session import default_master, refuse_connect
from millstream.spark.sink.left_open import abort_left_open
from millstream.wire.errors import KafkaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millstream.spark.runner.queries import Queries

REPORT_EVERY = 1.0
LOOK_EVERY = 0.1
# Of the reporting client: a report that cannot be written now is replaced by a later one.
TIMEOUT = 5.0


@dataclass
class Options:
    """The arguments of `millstream pipeline run`."""

    apps: Sequence[str]
    bootstrap_servers: str
    client: ClientConfig
    registry: str = ""
    name: str = ""
    checkpoint: str = ""
    master: str | None = None
    values: Mapping[str, str] = field(default_factory=dict)
    spark: Mapping[str, str] = field(default_factory=dict)
    restarts: int = 3
    available_now: bool = False
    grace: float = 30.0


def default_folder() -> str:
    home = os.environ.get("MILLSTREAM_HOME") or str(Path.home() / ".millstream")
    return str(Path(home, "pipelines"))


def run(options: Options, screen: Screen | None = None) -> int:
    """Returns 0 when all pipelines were stopped or finished, 1 when one failed. A mistake is a
    PipelineError."""
    apps = [App(path) for path in options.apps]
    names = [options.name or app.name for app in apps]
    if options.name and len(apps) > 1:
        raise PipelineError("--name is for one pipeline only")
    if options.name and not NAME.match(options.name):
        raise PipelineError(
            f"'{options.name}' is not a name for a pipeline: letters, digits, '.', '_' and '-'"
        )
    if len(set(names)) < len(names):
        raise PipelineError(f"two pipelines have the same name: {', '.join(names)}")
    problem = java_problem()
    if problem is not None:
        raise PipelineError(problem)
    try:
        # With the full timeout: a cluster under load takes its time to create a topic.
        end = create_status_topic(options.client)
    except KafkaError as error:
        raise PipelineError(
            f"the brokers at {options.bootstrap_servers} cannot be used: {error.message}"
        ) from None
    with StatusTopic(replace(options.client, total_timeout=TIMEOUT), end) as status_topic:
        return _Process(
            options, dict(zip(names, apps, strict=True)), status_topic, screen or default_screen()
        ).run()


class _Process:
    def __init__(
        self, options: Options, apps: Mapping[str, App], status_topic: StatusTopic, screen: Screen
    ) -> None:
        self._options = options
        self._apps = apps
        self._status_topic = status_topic
        self._screen = screen
        self._root = checkpoint_root(options.checkpoint, default_folder())
        self._stop_all = threading.Event()
        self._stop_some: set[str] = set()
        self._done = threading.Event()
        self._pipelines: dict[str, Queries] = {}

    def run(self) -> int:
        from millstream.spark.runner.queries import Listener
        from millstream.spark.session import stderr_to

        refuse_connect(self._options.master)
        # Of a JVM that dies in the middle of a call py4j logs two tracebacks, by the root logger; `_watch`
        # says it in one line.
        logging.getLogger().addFilter(lambda record: record.module != "java_gateway")
        locks = [lock_folder(self._root.local / name, name) for name in self._apps]
        log = self._root.local / "spark.log"
        master = self._options.master or default_master()
        self._screen.message(f"Starting Spark ({master}); its log is {log}")
        listener = Listener()
        sessions = self._sessions(log)
        first = next(iter(sessions.values()))
        context = first.sparkContext
        reporter = threading.Thread(target=self._report, name="millstream-report", daemon=True)
        try:
            with self._signals():
                for session in sessions.values():
                    use_remote(session, self._root)
                for name, app in self._apps.items():
                    sessions[name].streams.addListener(listener)  # each session has streams of its own
                    self._pipelines[name] = self._prepared(name, app, sessions[name], listener)
                reporter.start()
                self._start()
                self._watch(first)
        finally:
            for queries in self._pipelines.values():
                queries.stop(0)
            self._done.set()
            if reporter.ident is not None:
                reporter.join(2 * TIMEOUT)
            self._screen.close()
            with stderr_to(log):
                if why_lost(first) is None:
                    context.stop()
                else:
                    forget_lost(first)
            for lock in locks:
                lock.close()
        return self._verdict()

    # --- starting -------------------------------------------------------------------------------------------

    def _sessions(self, log: Path) -> dict[str, Any]:
        from millstream.spark.session import LOG_VARIABLE, spark, stderr_to

        os.environ.setdefault(LOG_VARIABLE, "ERROR")  # into a file: with Java's stacks
        try:
            with stderr_to(log):
                return {name: spark(name, self._options.spark, self._options.master) for name in self._apps}
        except Exception as error:
            raise PipelineError(f"Spark does not start: {reason(error)} (see {log})") from error

    def _prepared(self, name: str, app: App, session: Any, listener: Any) -> "Queries":
        from millstream.spark.runner.queries import Queries

        options, folder = self._options, self._root.of(name)
        settings = Settings(
            name,
            options.values,
            options.bootstrap_servers,
            options.registry,
            folder,
            options_of(options.client),
            str((self._root.local / name).absolute()),
        )
        now = round(time.time() * 1000)
        status = Status(
            pipeline=name,
            run=str(uuid.uuid4()),
            app=str(app.path),
            host=socket.gethostname(),
            pid=os.getpid(),
            master=session.sparkContext.master,
            checkpoint=folder,
            started=now,
            updated=now,
        )
        return Queries(
            app,
            session,
            settings,
            status,
            listener,
            restarts=options.restarts,
            available_now=options.available_now,
            settle=self._abort_left_open,
        )

    def _abort_left_open(self, query_ids: Collection[str]) -> None:
        """If that cannot be done now (brokers that are away, rights that are missing), time does it."""
        client = replace(self._options.client, total_timeout=TIMEOUT)
        with contextlib.suppress(KafkaError), Cluster(client) as cluster:
            abort_left_open(cluster, query_ids)

    def _start(self) -> None:
        for name, queries in self._pipelines.items():
            try:
                queries.start()
            except PipelineError as error:
                queries.status.state = FAILED
                queries.status.last_error = error.message
                queries.changed.set()
                self._stop_all.set()
                return
            self._screen.message(f"Pipeline {name} runs; its checkpoint is {queries.status.checkpoint}")

    # --- watching -------------------------------------------------------------------------------------------

    def _watch(self, session: "SparkSession") -> None:
        from py4j.protocol import Py4JError

        jvm = jvm_of(session.sparkContext)
        active = {
            name: queries for name, queries in self._pipelines.items() if queries.status.state != FAILED
        }
        restarts = dict.fromkeys(active, 0)
        while active and not self._stop_all.wait(LOOK_EVERY):
            try:
                if jvm is not None and jvm.poll() is not None:
                    raise ConnectionError
                self._look(active, restarts)
            except (Py4JError, ConnectionError):
                reason = why_lost(session)
                if reason is None:
                    raise
                for queries in active.values():
                    queries.fail(f"{reason} (see {self._root.local / 'spark.log'})")
                return
            self._screen.show([queries.status for queries in self._pipelines.values()])
        for queries in active.values():
            queries.stop(self._options.grace)

    def _look(self, active: dict[str, "Queries"], restarts: dict[str, int]) -> None:
        for name, queries in list(active.items()):
            if name in self._stop_some:
                queries.stop(self._options.grace)
            if name in self._stop_some or not queries.check():
                del active[name]
            elif queries.status.restarts != restarts[name]:
                restarts[name] = queries.status.restarts
                self._screen.message(
                    f"Pipeline {name} failed and is started again: {queries.status.last_error}"
                )

    def _verdict(self) -> int:
        failed = 0
        for name, queries in self._pipelines.items():
            status = queries.status
            if status.state == FAILED:
                failed = 1
                print(f"pipeline {name} failed: {status.last_error}", file=sys.stderr)
            else:
                self._screen.message(
                    f"Pipeline {name} {status.state}, {sum(query.rows for query in status.queries):,} rows "
                    "read."
                )
        return failed

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        def notice(number: int, _: FrameType | None) -> None:
            if self._stop_all.is_set():
                os._exit(128 + number)  # a second signal: now
            self._stop_all.set()

        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {one: signal.signal(one, notice) for one in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)

    # --- reporting, in a thread of its own ------------------------------------------------------------------

    def _report(self) -> None:
        last = dict.fromkeys(self._pipelines, 0.0)
        while True:
            done = self._done.is_set()
            try:
                for name, queries in self._pipelines.items():
                    waited = time.monotonic() - last[name]
                    if done or waited > HEARTBEAT or (queries.changed.is_set() and waited > REPORT_EVERY):
                        queries.changed.clear()
                        self._publish(queries.status)
                        last[name] = time.monotonic()
                if done:
                    return
                for about in self._status_topic.poll(300):
                    if isinstance(about, Command):
                        self._obey(about)
            except KafkaError:
                if done:
                    return
                self._done.wait(0.5)  # the brokers are away; there will be a newer report when they are back

    def _publish(self, status: Status) -> None:
        for query in status.queries:
            if query.offsets:
                with contextlib.suppress(KafkaError):
                    query.lag = lag_of(query.offsets, self._status_topic.ends_of(query.offsets))
        status.updated = round(time.time() * 1000)
        self._status_topic.publish(status)
        for complaint in self._status_topic.groups.commit(status):
            self._screen.message(f"Pipeline {status.pipeline}: {complaint}")

    def _obey(self, command: Command) -> None:
        queries = self._pipelines.get(command.pipeline)
        if queries is not None and command.command == "stop" and command.run == queries.status.run:
            self._stop_some.add(command.pipeline)
