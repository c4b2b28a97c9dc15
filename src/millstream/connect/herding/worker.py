"""One worker's share of the work, made so: connectors that it looks after, tasks that it runs.

One thread compares what should be (the config topic, and who is there) with what is, connector by connector.
Starting Spark for the first task takes seconds; nobody but this thread waits for it.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from millstream.client import Cluster, TransactionalProducer
from millstream.connect.api import Connector, SinkConnector
from millstream.connect.config.config_def import ConfigError
from millstream.connect.config.config_providers import resolve
from millstream.connect.herding.assignment import CONNECTOR, Item, assign
from millstream.connect.herding.secrets import hidden, secrets_of
from millstream.connect.herding.statuses import StatusWriter
from millstream.connect.herding.tasks import OpenTask, Tasks
from millstream.connect.plugins import task_class_of
from millstream.connect.runtime.task_spec import TOPIC_METRIC, TaskSpec
from millstream.connect.stores.config_state import (
    PAUSED,
    STARTED,
    STOPPED,
    ConfigState,
    Pair,
    Restart,
    fencing_record,
    task_records,
)
from millstream.connect.stores.status_state import StatusState, TopicUse
from millstream.host.unit import UnitStatus
from millstream.wire.errors import KafkaError

log = logging.getLogger("millstream.connect")

WATCH_SECONDS = 1.0
"""How often tasks are asked which topics they use."""
CONNECTOR_STOP_SECONDS = 5.0
"""For all connectors that stop at once, as in Kafka."""


class Appends(Protocol):
    def append(self, pairs: list[Pair]) -> None: ...


class Environment(Protocol):
    """What the worker has of its herder."""

    def class_of(self, settings: Mapping[str, str]) -> type[Connector]: ...

    def spec(
        self, name: str, number: int, settings: dict[str, str], tasks: list[dict[str, str]]
    ) -> TaskSpec: ...


class Worker:
    def __init__(
        self,
        environment: Environment,
        configs: ConfigState,
        statuses: StatusState,
        store: Appends,
        writer: StatusWriter,
        tasks: Tasks,
        url: str,
        providers: dict[str, str],
        members: Callable[[], frozenset[str]],
        fence_cluster: Callable[[], Cluster] | None,
        stop_seconds: float,
    ) -> None:
        """`members` are the workers that share the work. `fence_cluster` is None where sources are not
        fenced. `stop_seconds` is what tasks have to end."""
        self._environment, self._configs, self._statuses = environment, configs, statuses
        self._store, self.writer, self.tasks = store, writer, tasks
        self._url, self._providers, self._members = url, providers, members
        self._fence_cluster, self._stop_seconds = fence_cluster, stop_seconds
        self.connectors: dict[str, Connector] = {}
        self._failed: dict[str, dict[str, str]] = {}
        self.assignment: dict[Item, str] = {}
        self._changed: set[str] = set()
        self._to_deal: set[str] = set()
        self._restarts: list[tuple[str, int]] = []
        self._wake = threading.Condition()
        self._stopped = self._look_again = False
        self._next_watch = 0.0
        self._seen: dict[str, dict[tuple[str, str], float]] = {}
        """Of each connector, by task and topic: its last use that was looked at."""
        self._thread = threading.Thread(target=self._run, name="connect-worker", daemon=True)

    # --- from other threads ---------------------------------------------------------------------------------

    def start(self, known: set[str]) -> None:
        """`known`: the connectors that have a status. Nobody may have seen the end of one that is gone."""
        with self._wake:
            self._changed |= {*self._configs.connectors, *known}
        self._thread.start()

    def changed(self, *names: str) -> None:
        with self._wake:
            self._changed.update(names)
            self._wake.notify_all()

    def deal_again(self, name: str) -> None:
        """A connector's tasks are to have other settings."""
        with self._wake:
            self._to_deal.add(name)
        self.changed(name)

    def woken(self) -> None:
        with self._wake:
            self._wake.notify_all()

    def members_changed(self) -> None:
        """Look again who is to run what."""
        with self._wake:
            self._look_again = True
            self._wake.notify_all()

    def restart_task(self, name: str, number: int) -> None:
        with self._wake:
            self._restarts.append((name, number))
            self._wake.notify_all()

    def stop(self, *, silently: bool = False) -> None:
        with self._wake:
            self._stopped = True
            self._wake.notify_all()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(self._stop_seconds + CONNECTOR_STOP_SECONDS)
        self._end(*{*self.connectors, *self.tasks.names})
        if not silently:
            self.writer.flush()

    # --- in the thread --------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(self._has_work, self._pause())
                if self._stopped:
                    return
                changed, self._changed, self._look_again = self._changed, set(), False
                requests, self._configs.restarts[:] = list(self._configs.restarts), []
                restarts, self._restarts = self._restarts, []
            for request in requests:
                self._attempt(request.connector, lambda request=request: self._restart(request))  # type: ignore[misc]
            for name, number in restarts:
                self._attempt(name, lambda name=name, number=number: self._restart_task(name, number))  # type: ignore[misc]
            changed |= self._moved()
            try:
                self._end(*(name for name in changed if self._configs.target_states.get(name) != STARTED))
            except Exception as error:
                log.warning("tasks cannot be told to end: %s", error)
            for name in sorted(changed):
                self._attempt(name, lambda name=name: self._reconcile(name))  # type: ignore[misc]
            try:
                self._watch()
            except Exception as error:
                # The driver may be away; what it runs is told again when it is back.
                log.warning("tasks cannot be asked: %s", error)
            self.writer.flush()

    def _has_work(self) -> bool:
        return bool(
            self._stopped
            or self._look_again
            or self._changed
            or self._restarts
            or self._configs.restarts
            or self.writer.waiting
        )

    def _pause(self) -> float | None:
        if not self.tasks.names:
            return WATCH_SECONDS
        times = [self._next_watch, self.tasks.next_restart() or self._next_watch]
        return max(0.0, min(times) - time.monotonic())

    def _attempt(self, name: str, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:
            said = self._hidden(self._configs.connectors.get(name, {}), f"{type(error).__name__}: {error}")
            log.error("connector %s: %s", name, said)
            self.writer.connector(name, "FAILED", said)

    def _moved(self) -> set[str]:
        """The connectors of which something is to run elsewhere than before."""
        counts = {name: len(self._configs.tasks.get(name, [])) for name in self._configs.connectors}
        assignment = assign(self._members(), counts)
        old, self.assignment = self.assignment, assignment
        return {item.connector for item, _ in assignment.items() ^ old.items()}

    def _mine(self, name: str, number: int) -> bool:
        return self.assignment.get(Item(name, number)) == self._url

    def _reconcile(self, name: str) -> None:
        settings = self._configs.connectors.get(name)
        if settings is None:
            self._end(name)
            self._failed.pop(name, None)
            self.writer.forget(name)
            return
        state = self._configs.target_states.get(name, STARTED)
        if state != STARTED:
            self._rest(name, state)
            return
        if self._mine(name, CONNECTOR):
            self._look_after(name, settings)
        else:
            self._stop_connectors(name)
        # A connector that has not dealt yet has no tasks.
        if name in self._configs.tasks:
            self._run_tasks(name, self._configs.applied.get(name, settings))
            if self._mine(name, CONNECTOR):
                self.writer.forget_tasks(name, len(self._configs.tasks[name]))

    def _rest(self, name: str, state: str) -> None:
        self._end(name)
        self._failed.pop(name, None)
        if self._mine(name, CONNECTOR):
            self.writer.connector(name, state, version=self._known_version(name))
            if state == STOPPED:
                self.writer.forget_tasks(name)
        if state == PAUSED:
            for number in range(len(self._configs.tasks.get(name, []))):
                if self._mine(name, number):
                    self.writer.task(name, number, PAUSED, version=self._known_version(name))

    # --- connectors -----------------------------------------------------------------------------------------

    def _look_after(self, name: str, settings: dict[str, str]) -> None:
        resolved = resolve(settings, self._providers)
        running = self.connectors.get(name)
        if running is not None and running.settings == resolved:
            if name in self._to_deal:
                self._to_deal.discard(name)
                self._keep_tasks(name, running, settings, self._dealt(name, running, settings, resolved))
            return
        if self._failed.get(name) == settings:
            return
        self._stop_connectors(name)
        try:
            connector = self._environment.class_of(settings)(resolved)
            connector.request_task_reconfiguration = functools.partial(self.deal_again, name)
            connector.start()
            tasks = self._dealt(name, connector, settings, resolved)
        except Exception as error:
            # Tasks of an earlier configuration go on, as in Kafka.
            self._failed[name] = settings
            self.writer.connector(name, "FAILED", self._hidden(settings, f"{type(error).__name__}: {error}"))
            return
        self._failed.pop(name, None)
        self.connectors[name] = connector
        self.writer.connector(name, "RUNNING", version=connector.version)
        self._keep_tasks(name, connector, settings, tasks)

    def _keep_tasks(
        self, name: str, connector: Connector, settings: dict[str, str], tasks: list[dict[str, str]]
    ) -> None:
        """In the config topic, where they differ from what is there."""
        if tasks != self._configs.tasks.get(name) or settings != self._configs.applied.get(name):
            self._fence(name, connector, len(tasks))
            self._store.append(task_records(name, tasks))
            # Whoever came or went meanwhile moves others, too.
            self.changed(*(self._moved() - {name}))

    def _dealt(
        self, name: str, connector: Connector, settings: dict[str, str], resolved: Mapping[str, str]
    ) -> list[dict[str, str]]:
        max_tasks = int(settings.get("tasks.max", "1"))
        dealt = connector.task_settings(max_tasks)
        if len(dealt) > max_tasks and settings.get("tasks.max.enforce", "true").lower() != "false":
            raise ValueError(
                f"The connector {name} has generated {len(dealt)} tasks, which is greater than {max_tasks}, "
                "the maximum number of tasks it is configured to create."
            )
        # What a task is given refers to secrets as the connector's settings do: none is stored. A Java worker
        # looks for the class of the task there.
        return [
            {
                key: settings[key] if key in settings and resolved[key] == value else value
                for key, value in task.items()
            }
            | {"task.class": task_class_of(type(connector))}
            for task in dealt
        ]

    def _fence(self, name: str, connector: Connector, count: int) -> None:
        """Tasks that there will be no more lose their transactional ids (KIP-618); those that go on are
        fenced by whoever opens them."""
        before = max(len(self._configs.tasks.get(name, [])), self._configs.fenced.get(name, 0))
        if self._fence_cluster is None or isinstance(connector, SinkConnector):
            return
        if before > count:
            with contextlib.closing(self._fence_cluster()) as cluster:
                settings = self._configs.connectors.get(name, {})
                for number in range(count, before):
                    spec = self._environment.spec(name, number, settings, [{}] * before)
                    with contextlib.suppress(KafkaError):
                        TransactionalProducer(cluster, spec.transactional_id).begin()
        if before:
            self._store.append([fencing_record(name, before)])

    def _stop_connectors(self, *names: str) -> None:
        """They may wait for servers that are away, all at the same time."""
        running = [self.connectors.pop(name) for name in names if name in self.connectors]
        threads = [threading.Thread(target=_stop, args=(one,), daemon=True) for one in running]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + CONNECTOR_STOP_SECONDS
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _end(self, *names: str) -> None:
        for name, statuses in self.tasks.end(*names).items():
            self._note_topics(name, statuses)
            self._seen.pop(name, None)
        self._stop_connectors(*names)

    # --- tasks ----------------------------------------------------------------------------------------------

    def _run_tasks(self, name: str, settings: dict[str, str]) -> None:
        tasks = self._configs.tasks[name]
        numbers = tuple(number for number in range(len(tasks)) if self._mine(name, number))
        sink = issubclass(self._environment.class_of(settings), SinkConnector)
        specs = tuple(self._environment.spec(name, number, settings, tasks) for number in range(len(tasks)))
        open_task = OpenTask(specs, sink)
        for number in self.tasks.new(name, open_task, numbers):
            self.writer.task(name, number, "UNASSIGNED", version=self._version(settings))
        for ended, statuses in self.tasks.run(name, open_task, numbers).items():
            self._note_topics(ended, statuses)

    def _version(self, settings: Mapping[str, str]) -> str | None:
        return self._environment.class_of(settings).version

    def _known_version(self, name: str) -> str | None:
        """None where the class is not there."""
        try:
            return self._version(self._configs.connectors.get(name, {}))
        except ConfigError:
            return None

    def heard(self, name: str, number: int, state: str, trace: str | None) -> None:
        """In a thread of the host."""
        settings = self._configs.connectors.get(name)
        if settings is not None:
            with contextlib.suppress(Exception):
                shown = None if trace is None else self._hidden(settings, trace)
                self.writer.task(name, number, state, shown, self._version(settings))

    def _hidden(self, settings: dict[str, str], text: str) -> str:
        try:
            config = self._environment.class_of(settings).config
            return hidden(text, secrets_of(settings, resolve(settings, self._providers), config))
        except Exception:
            # What cannot be told apart is not told.
            return text.partition(":")[0]

    # --- restarts -------------------------------------------------------------------------------------------

    def _restart(self, request: Restart) -> None:
        name = request.connector
        if name not in self._configs.connectors or self._configs.target_states.get(name) != STARTED:
            return
        status = self._statuses.connectors.get(name)
        failed = status is not None and status.state == "FAILED"
        if self._mine(name, CONNECTOR) and (failed or not request.only_failed):
            self._stop_connectors(name)
            self._failed.pop(name, None)
            self.changed(name)
        if request.include_tasks:
            for number in self.tasks.numbers(name):
                task = self._statuses.tasks.get(name, {}).get(number)
                if not request.only_failed or (task is not None and task.state == "FAILED"):
                    self._restart_task(name, number)

    def _restart_task(self, name: str, number: int) -> None:
        if number in self.tasks.numbers(name):
            settings = self._configs.connectors.get(name, {})
            self.writer.task(name, number, "RESTARTING", version=self._version(settings))
            self.tasks.restart(name, number)

    # --- what tasks say of themselves -----------------------------------------------------------------------

    def _watch(self) -> None:
        now = time.monotonic()
        for name, number in self.tasks.restart_due(now):
            self.writer.task(name, number, "RESTARTING", version=self._known_version(name))
        if now < self._next_watch:
            return
        self._next_watch = now + WATCH_SECONDS
        if not self.tasks.names:
            return
        for name, states in self.tasks.all_states().items():
            self._note_topics(name, {unit: state.status for unit, state in states.items()})

    def _note_topics(self, name: str, statuses: Mapping[str, UnitStatus]) -> None:
        """Those that were used since the last look and are not known: after a reset, one is noted with its
        next record."""
        known, seen = self._statuses.topics.get(name, {}), self._seen.setdefault(name, {})
        for unit, status in statuses.items():
            for metric, used in status.metrics.items():
                if metric.startswith(TOPIC_METRIC) and seen.get((unit, metric)) != used:
                    seen[unit, metric] = used
                    topic = metric.removeprefix(TOPIC_METRIC)
                    if topic not in known:
                        self.writer.topics([TopicUse(topic, name, int(unit), int(time.time() * 1000))])

    def metrics(self) -> dict[str, dict[int, Any]]:
        """What the tasks of this worker have done, by connector and number."""
        try:
            found = self.tasks.all_states()
        except Exception as error:
            log.warning("tasks cannot be asked: %s", error)
            return {}
        return {
            name: {int(unit): state.status for unit, state in states.items()}
            for name, states in found.items()
        }


def _stop(connector: Connector) -> None:
    with contextlib.suppress(Exception):
        connector.stop()
