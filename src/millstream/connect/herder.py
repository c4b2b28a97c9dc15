"""The herder: which connectors there are, what state each is to be in, and the units that make it so.

What counts is in the stores; the herder writes there and hears back what was written, its own records too.
Each connector is an application of the host, each of its tasks a unit: a new connector disturbs no other.
Whatever the tasks do is told by the host's listener and goes into the status store.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from millstream.client import Cluster
from millstream.connect.api import Connector, SinkConnector
from millstream.connect.config.config_def import ConfigError
from millstream.connect.config.config_providers import providers_of, resolve
from millstream.connect.connector_offsets import SinkOffsets, SourceOffsets
from millstream.connect.errors import ConnectError
from millstream.connect.plugins import find_connector, type_of
from millstream.connect.runtime.sink_unit import SinkUnit
from millstream.connect.runtime.source_unit import SourceUnit
from millstream.connect.runtime.task_spec import TaskSpec
from millstream.connect.stores.config_state import (
    PAUSED,
    STARTED,
    STOPPED,
    ConfigState,
    Pair,
    connector_record,
    target_state_record,
    task_records,
)
from millstream.connect.stores.status_state import Status, StatusState, connector_status, task_status
from millstream.connect.validation import error_text, validate
from millstream.connect.worker_config import WorkerConfig
from millstream.host.membership import PlannerMembership
from millstream.host.unit import Application, LaneContext, Unit, UnitId, UnitListener, UnitState

log = logging.getLogger("millstream.connect")

STOP_SECONDS = 30.0
"""For the last commits of a connector's tasks."""


class NotFound(ConnectError):
    """There is no such connector, or no such task."""


class Conflict(ConnectError):
    """There is one already."""


class BadRequest(ConnectError):
    """The request makes no sense, or not now."""


class Store(Protocol):
    def start(self) -> None: ...

    def append(self, pairs: Sequence[Pair]) -> None: ...

    def read_to_end(self) -> None: ...

    def close(self) -> None: ...


class Host(Protocol):
    """What the herder needs of a host, wherever it runs."""

    def add(self, application: Application, listener: UnitListener = ...) -> None: ...

    def remove(self, application: str, timeout: float) -> bool: ...

    def restart(self, application: str, name: str) -> None: ...


@dataclass(frozen=True, slots=True)
class OpenTask:
    """Makes a unit of a connector, in the process where it runs."""

    specs: tuple[TaskSpec, ...]
    sink: bool

    def __call__(self, name: str, lane: LaneContext) -> Unit:
        spec = self.specs[int(name)]
        return SinkUnit(spec, lane) if self.sink else SourceUnit(spec, lane)


@dataclass(slots=True)
class _Running:
    connector: Connector
    tasks: int
    generation: int


class Herder:
    def __init__(
        self,
        config: WorkerConfig,
        worker_id: str,
        group: str,
        host: Host,
        config_store: Callable[[Callable[[bytes | None, bytes | None], None]], Store],
        status_store: Callable[[Callable[[bytes | None, bytes | None], None]], Store],
        *,
        offsets_topic: str | None = None,
        offsets_file: str | None = None,
        exactly_once: bool = True,
        alone: bool = False,
    ) -> None:
        """`alone`: nobody else can have this group, so there is none to join."""
        self._config, self._worker_id, self._group, self._host = config, worker_id, group, host
        self._offsets_topic, self._offsets_file = offsets_topic, offsets_file
        self._exactly_once = exactly_once
        self.configs, self.statuses = ConfigState(), StatusState()
        self._config_store = config_store(self._config_record)
        self._status_store = status_store(self.statuses.apply)
        self._running: dict[str, _Running] = {}
        self._generations: dict[str, int] = {}
        self._lock = threading.RLock()
        self._providers = providers_of(config.given)
        self._changed: set[str] = set()
        self._state_changes: list[Pair] = []
        self._wake = threading.Condition()
        self._stopped = False
        self.fenced = threading.Event()
        self._membership = None if alone else PlannerMembership(config.client, group, self._replaced)
        self._thread = threading.Thread(target=self._reconcile_forever, name="herder", daemon=True)

    # --- life -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        if self._membership is not None:
            self._membership.join()
        self._status_store.start()
        self._config_store.start()
        with self._wake:
            self._changed |= set(self.configs.connectors)
        self._thread.start()

    def stop(self) -> None:
        with self._wake:
            self._stopped = True
            self._wake.notify_all()
        if self._thread.is_alive():
            self._thread.join(30)
        with self._lock:
            for name in list(self._running):
                self._end(name)
        if not self.fenced.is_set():
            self._flush_states()
        if self._membership is not None:
            self._membership.leave()
        self._config_store.close()
        self._status_store.close()

    def _replaced(self) -> None:
        """Another worker of this group has started and runs the connectors: this one ends its tasks."""
        log.error(
            "another worker of the group %s runs its connectors now; this one does nothing any more",
            self._group,
        )
        self.fenced.set()
        with self._wake:
            self._stopped = True
            self._wake.notify_all()
        with self._lock:
            for name in list(self._running):
                self._end(name)

    @property
    def cluster_id(self) -> str | None:
        cluster = Cluster(self._config.client)
        try:
            cluster.refresh([])
            return cluster.cluster_id
        finally:
            cluster.close()

    # --- what there is --------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        return sorted(self.configs.connectors)

    def settings(self, name: str) -> dict[str, str]:
        found = self.configs.connectors.get(name)
        if found is None:
            raise NotFound(f"Connector {name} not found")
        return found

    def info(self, name: str) -> dict[str, Any]:
        settings = self.settings(name)
        tasks = [
            {"connector": name, "task": number} for number in range(len(self.configs.tasks.get(name, [])))
        ]
        return {"name": name, "config": settings, "tasks": tasks, "type": self.kind(settings)}

    def kind(self, settings: Mapping[str, str]) -> str:
        try:
            return type_of(self._class_of(settings))
        except ConfigError:
            return "unknown"

    def task_configs(self, name: str) -> list[dict[str, Any]]:
        self.settings(name)
        return [
            {"id": {"connector": name, "task": number}, "config": settings}
            for number, settings in enumerate(self.configs.tasks.get(name, []))
        ]

    def status(self, name: str) -> dict[str, Any]:
        found = self.statuses.connectors.get(name)
        if found is None or name not in self.configs.connectors:
            raise NotFound(f"No status found for connector {name}")
        tasks = self.statuses.tasks.get(name, {})
        count = len(self.configs.tasks.get(name, []))
        return {
            "name": name,
            "connector": found.body(),
            "tasks": [{"id": number, **tasks[number].body()} for number in sorted(tasks) if number < count],
            "type": self.kind(self.configs.connectors[name]),
        }

    def task_status(self, name: str, number: int) -> dict[str, Any]:
        found = self.statuses.tasks.get(name, {}).get(number)
        if found is None:
            raise NotFound(f"No status found for task {name}-{number}")
        return {"id": number, **found.body()}

    def _class_of(self, settings: Mapping[str, str]) -> type[Connector]:
        name = settings.get("connector.class", "")
        if not name:
            raise ConfigError(
                "Connector config {"
                + ", ".join(f"{key}={value}" for key, value in settings.items())
                + "} contains no connector type"
            )
        return find_connector(name, tuple(self._config.value("plugin.path")))

    # --- what is asked for ----------------------------------------------------------------------------------

    def create(self, name: str, settings: dict[str, str], initial_state: str | None = None) -> dict[str, Any]:
        with self._lock:
            self._config_store.read_to_end()
            if name in self.configs.connectors:
                raise Conflict(f"Connector {name} already exists")
            state = (initial_state or STARTED).upper()
            if state == "RUNNING":
                state = STARTED
            if state not in (STARTED, PAUSED, STOPPED):
                raise BadRequest(f"Unknown initial state {initial_state}")
            self._put(name, settings, [] if initial_state is None else [target_state_record(name, state)])
            return self.info(name)

    def put_config(self, name: str, settings: dict[str, str]) -> tuple[bool, dict[str, Any]]:
        """Whether it was made by this, and what it is now."""
        with self._lock:
            self._config_store.read_to_end()
            created = name not in self.configs.connectors
            self._put(name, settings, [])
            return created, self.info(name)

    def patch_config(self, name: str, changes: Mapping[str, str | None]) -> dict[str, Any]:
        with self._lock:
            self._config_store.read_to_end()
            merged = {**self.settings(name), **changes}
            self._put(name, {key: value for key, value in merged.items() if value is not None}, [])
            return self.info(name)

    def _put(self, name: str, settings: dict[str, str], more: list[Pair]) -> None:
        whole = {**settings, "name": settings.get("name", name)}
        connector = self._class_of(whole)
        wrong = error_text(validate(connector, resolve(whole, self._providers)))
        if wrong is not None:
            raise BadRequest(wrong)
        self._config_store.append([*more, connector_record(name, whole)])

    def delete(self, name: str) -> None:
        with self._lock:
            self._config_store.read_to_end()
            self.settings(name)
            self._config_store.append([connector_record(name, None), target_state_record(name, None)])

    def set_target_state(self, name: str, state: str) -> None:
        with self._lock:
            self._config_store.read_to_end()
            if name not in self.configs.connectors:
                raise NotFound(f"Unknown connector {name}")
            records = [target_state_record(name, state)]
            if state == STOPPED:
                records += task_records(name, [])
            self._config_store.append(records)

    def restart(self, name: str, *, include_tasks: bool, only_failed: bool) -> None:
        with self._lock:
            if name not in self.configs.connectors:
                raise NotFound(f"Unknown connector: {name}")
            statuses = self.statuses.tasks.get(name, {})
            found = self.statuses.connectors.get(name)
            connector_too = not only_failed or (found is not None and found.state == "FAILED")
            if connector_too and (include_tasks or name not in self._running):
                self._end(name)
                with self._wake:
                    self._changed.add(name)
                    self._wake.notify_all()
            elif include_tasks:
                for number, status in statuses.items():
                    if not only_failed or status.state == "FAILED":
                        self._restart_task(name, number)

    # --- offsets (KIP-875) ----------------------------------------------------------------------------------

    def offsets(self, name: str) -> list[dict[str, Any]]:
        settings = self.settings(name)
        with contextlib.closing(Cluster(self._config.client)) as cluster:
            return self._offsets(cluster, name, settings).read()

    def alter_offsets(self, name: str, entries: Sequence[dict[str, Any]] | None) -> str:
        """None for all of them, back to the beginning. Returns what to tell."""
        with self._lock:
            self._config_store.read_to_end()
            settings = self.settings(name)
            if self.configs.target_states.get(name) != STOPPED or name in self._running:
                raise BadRequest(
                    "Connectors must be in the STOPPED state before their offsets can be modified. This can "
                    "be done for the specified connector by issuing a 'PUT' request to the "
                    f"'/connectors/{name}/stop' endpoint"
                )
            connector = self._class_of(settings)(self._resolved(settings))
            with contextlib.closing(Cluster(self._config.client)) as cluster:
                held = self._offsets(cluster, name, settings)
                try:
                    whole = connector.alter_offsets(held.read() if entries is None else entries)
                    if entries is None:
                        held.reset()
                    else:
                        held.alter(entries)
                except ConnectError as error:
                    raise BadRequest(str(error)) from None
        done = "reset" if entries is None else "altered"
        if whole:
            return f"The offsets for this connector have been {done} successfully"
        return (
            f"The Connect framework-managed offsets for this connector have been {done} successfully. "
            f"However, if this connector manages offsets externally, they will need to be manually {done} in "
            "the system that the connector uses."
        )

    def _offsets(
        self, cluster: Cluster, name: str, settings: Mapping[str, str]
    ) -> SourceOffsets | SinkOffsets:
        if issubclass(self._class_of(settings), SinkConnector):
            return SinkOffsets(cluster, f"connect-{name}")
        topic = settings.get("offsets.storage.topic") or self._offsets_topic
        return SourceOffsets(cluster, name, topic, self._offsets_file)

    def restart_task(self, name: str, number: int) -> None:
        with self._lock:
            running = self._running.get(name)
            if running is None or number >= running.tasks:
                raise NotFound(f"Unknown task: {name}-{number}")
            self._restart_task(name, number)

    def _restart_task(self, name: str, number: int) -> None:
        self._say_task(name, number, "RESTARTING")
        self._host.restart(self._application(name), str(number))

    # --- making it so ---------------------------------------------------------------------------------------

    def _config_record(self, key: bytes | None, value: bytes | None) -> None:
        name = self.configs.apply(key, value)
        if name is not None:
            with self._wake:
                self._changed.add(name)
                self._wake.notify_all()

    def _reconcile_forever(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._stopped or self._changed or self._state_changes)
                if self._stopped:
                    return
                changed, self._changed = self._changed, set()
            for name in sorted(changed):
                with self._lock:
                    try:
                        self._reconcile(name)
                    except Exception as error:
                        log.exception("connector %s", name)
                        self._say(name, "FAILED", str(error))
            self._flush_states()

    def _reconcile(self, name: str) -> None:
        settings = self.configs.connectors.get(name)
        if settings is None:
            self._end(name)
            self._forget(name)
            return
        state = self.configs.target_states.get(name, STARTED)
        running = self._running.get(name)
        if state != STARTED:
            self._end(name)
            self._say(name, state)
            numbers = range(len(self.configs.tasks.get(name, [])))
            for number in sorted(set(self.statuses.tasks.get(name, {})) | set(numbers)):
                if state == PAUSED:
                    self._say_task(name, number, PAUSED)
                else:
                    self._queue([task_status(name, number, None)])
            return
        if running is not None and running.connector.settings == self._resolved(settings):
            return
        self._end(name)
        self._begin(name, settings)

    def _resolved(self, settings: Mapping[str, str]) -> dict[str, str]:
        return resolve(settings, self._providers)

    def _begin(self, name: str, settings: dict[str, str]) -> None:
        generation = self._generations[name] = self._generations.get(name, 0) + 1
        try:
            connector = self._class_of(settings)(self._resolved(settings))
            connector.start()
            max_tasks = int(settings.get("tasks.max", "1"))
            dealt = connector.task_settings(max_tasks)
        except Exception as error:
            self._say(name, "FAILED", f"{type(error).__name__}: {error}")
            return
        if len(dealt) > max_tasks and settings.get("tasks.max.enforce", "true").lower() != "false":
            self._say(
                name,
                "FAILED",
                f"The connector {name} has generated {len(dealt)} tasks, which is greater than {max_tasks}, "
                "the maximum number of tasks it is configured to create.",
            )
            return
        # What a task is given refers to secrets as the connector's settings do: none is stored.
        tasks = [self._unresolved(settings, task) for task in dealt]
        self._config_store.append(task_records(name, tasks))
        self._running[name] = _Running(connector, len(tasks), generation)
        self._say(name, "RUNNING")
        for number in range(len(tasks)):
            self._say_task(name, number, "UNASSIGNED")
        specs = tuple(self._spec(name, number, settings, tasks) for number in range(len(tasks)))
        units = tuple(str(number) for number in range(len(tasks)))
        application = Application(
            self._application(name),
            self._config.client,
            OpenTask(specs, isinstance(connector, SinkConnector)),
            units,
            waiting=frozenset(units),
        )
        self._host.add(application, lambda unit, state: self._heard(name, generation, unit, state))

    def _unresolved(self, settings: Mapping[str, str], task: Mapping[str, str]) -> dict[str, str]:
        resolved = self._resolved(settings)
        return {
            key: settings[key] if key in settings and resolved[key] == value else value
            for key, value in task.items()
        }

    def _spec(
        self, name: str, number: int, settings: dict[str, str], tasks: list[dict[str, str]]
    ) -> TaskSpec:
        return TaskSpec(
            group=self._group,
            connector=name,
            number=number,
            tasks=len(tasks),
            client=self._config.client,
            settings=settings,
            task=tasks[number],
            worker=self._config.converters,
            providers=self._providers,
            plugin_path=tuple(self._config.value("plugin.path")),
            offsets_topic=settings.get("offsets.storage.topic") or self._offsets_topic,
            offsets_file=self._offsets_file,
            exactly_once=self._exactly_once,
        )

    def _application(self, name: str) -> str:
        return f"{self._group}:{name}"

    def _end(self, name: str) -> None:
        running = self._running.pop(name, None)
        if running is not None:
            self._host.remove(self._application(name), STOP_SECONDS)
            running.connector.stop()

    # --- saying what state it is in -------------------------------------------------------------------------

    def _heard(self, name: str, generation: int, unit: UnitId, state: UnitState) -> None:
        """In a thread of the host."""
        running = self._running.get(name)
        if running is None or running.generation != generation:
            return
        known = {"running": "RUNNING", "failed": "FAILED"}.get(state.state)
        if known is not None:
            trace = f"{state.error}\n{state.trace}" if known == "FAILED" else None
            self._say_task(name, int(unit.name), known, trace)
            self._woken()

    def _say(self, name: str, state: str, trace: str | None = None) -> None:
        status = Status(state, self._worker_id, self._generations.get(name, 0), trace, self._version(name))
        self.statuses.connectors[name] = status
        self._queue([connector_status(name, status)])

    def _say_task(self, name: str, number: int, state: str, trace: str | None = None) -> None:
        status = Status(state, self._worker_id, self._generations.get(name, 0), trace, self._version(name))
        self.statuses.tasks.setdefault(name, {})[number] = status
        self._queue([task_status(name, number, status)])

    def _version(self, name: str) -> str | None:
        running = self._running.get(name)
        return running.connector.version if running is not None else None

    def _forget(self, name: str) -> None:
        numbers = self.statuses.tasks.pop(name, {})
        self.statuses.connectors.pop(name, None)
        self._queue([connector_status(name, None), *(task_status(name, number, None) for number in numbers)])

    def _queue(self, pairs: list[Pair]) -> None:
        with self._wake:
            self._state_changes += pairs

    def _woken(self) -> None:
        with self._wake:
            self._wake.notify_all()

    def _flush_states(self) -> None:
        """States are written behind: nobody waits for them, and the newest of each is enough."""
        with self._wake:
            pairs, self._state_changes = dict(self._state_changes), []
        if pairs:
            try:
                self._status_store.append(list(pairs.items()))
            except Exception as error:
                log.warning("states are written later: %s", error)
                time.sleep(0.2)  # the pace of trying again while no broker answers
                with self._wake:
                    self._state_changes = [*pairs.items(), *self._state_changes]
