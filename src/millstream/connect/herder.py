"""The herder: what can be asked of a cluster of workers, and what a worker answers.

What counts is in the stores. A request is decided on what they hold and appended there, and only if nobody
else has written meanwhile: any worker takes any request, there is no leader. Every worker hears of what was
written, its own records too, and runs its share (see herding.worker).
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from millstream.client import ClientConfig, Cluster
from millstream.connect.api import Connector, SinkConnector
from millstream.connect.config.config_def import ConfigError, ConfigValue, given, printed
from millstream.connect.config.config_providers import providers_of, resolve
from millstream.connect.connector_offsets import BadOffsets, SinkOffsets, SourceOffsets, change_offsets
from millstream.connect.errors import ConnectError
from millstream.connect.herding.assignment import Item
from millstream.connect.herding.members import Absences, MemberConfig, Members
from millstream.connect.herding.redrives import dead_letters_left, redrive_all
from millstream.connect.herding.request_errors import BadRequest, Conflict, Elsewhere, Forbidden, NotFound
from millstream.connect.herding.statuses import StatusWriter
from millstream.connect.herding.tasks import Tasks
from millstream.connect.herding.worker import Worker
from millstream.connect.plugins import find_connector, type_of
from millstream.connect.preview import PreviewSpec, preview_in_child
from millstream.connect.runtime.client_settings import (
    OVERRIDE_POLICY,
    Kind,
    client_config,
    client_settings,
    consumer_group,
    policy_of,
)
from millstream.connect.runtime.task_spec import TaskSpec
from millstream.connect.stores.config_state import (
    PAUSED,
    STARTED,
    STOPPED,
    ConfigState,
    Pair,
    connector_record,
    logger_record,
    redrive_record,
    restart_record,
    target_state_record,
    task_records,
)
from millstream.connect.stores.status_state import StatusState
from millstream.connect.stores.topic_store import Apply, Store
from millstream.connect.validation import error_text, validate
from millstream.connect.worker_config import GRACEFUL_TIMEOUT, WorkerConfig
from millstream.filters import FilterError, compile_filter
from millstream.host.control import AnyHost

log = logging.getLogger("millstream.connect")


class Herder:
    def __init__(
        self,
        config: WorkerConfig,
        worker_id: str,
        group: str,
        host: AnyHost,
        config_store: Callable[[Apply], Store],
        status_store: Callable[[Apply], Store],
        *,
        offsets_topic: str | None = None,
        offsets_file: str | None = None,
        exactly_once: bool = True,
        alone: bool = False,
        member: MemberConfig | None = None,
        rebalance_delay: float = 0.0,
        level_changed: Callable[[str, str], object] = lambda _logger, _level: None,
    ) -> None:
        """`alone`: nobody else can have this group, so there is none to join. `level_changed` hears of log
        levels for the whole cluster."""
        self._config, self._worker_id, self._group = config, worker_id, group
        self._offsets_topic, self._offsets_file = offsets_topic, offsets_file
        self._exactly_once = exactly_once
        self._level_changed = level_changed
        policy_of(config.value(OVERRIDE_POLICY))
        self.configs, self.statuses = ConfigState(), StatusState()
        self._config_store = config_store(self._config_record)
        self._status_store = status_store(self.statuses.apply)
        self._providers = providers_of(config.given)
        self._commands = threading.RLock()
        self.ready = threading.Event()
        self._url = member.url if member is not None else f"http://{worker_id}/"
        self._absences = Absences(rebalance_delay)
        self._members: Members | None = None
        if not alone:
            joins = member or MemberConfig(group, self._url)
            self._members = Members(config.client, joins, self._members_changed, self._replaced)
        else:
            self._absences.update([self._url], 0.0)
        self.fenced = threading.Event()
        writer = StatusWriter(self.statuses, self._status_store, worker_id, self._generation, self._woken)
        stop_seconds = config.number(GRACEFUL_TIMEOUT) / 1000
        tasks = Tasks(host, config.client, f"{group}@{worker_id}", self._heard, stop_seconds)
        self.worker = Worker(
            self,
            self.configs,
            self.statuses,
            self._config_store,
            writer,
            tasks,
            self._url,
            self._providers,
            lambda: self._absences.counted(time.monotonic()),
            (lambda: Cluster(config.client)) if exactly_once else None,
            stop_seconds,
        )

    # --- life -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._status_store.start()
        known = self.statuses.connector_names()  # the settings of each were written before
        self._config_store.start()
        self.configs.restarts.clear()  # of another time
        for logger, level in self.configs.loggers.items():
            self._level_changed(logger, level)
        self.ready.set()
        self.worker.start(known)
        if self._members is not None:
            self._members.start()

    def stop(self) -> None:
        self.worker.stop(silently=self.fenced.is_set())
        if self._members is not None:
            self._members.stop()
        self._config_store.close()
        self._status_store.close()

    def _members_changed(self, urls: tuple[str, ...]) -> None:
        self._absences.update(urls, time.monotonic())
        self.worker.members_changed()

    def _replaced(self) -> None:
        """Another worker with this one's address has started: this one ends its tasks."""
        log.error(
            "another worker of the group %s has this worker's address, %s; this one does nothing any more",
            self._group,
            self._url,
        )
        self.fenced.set()
        self.worker.stop(silently=True)

    def _generation(self) -> int:
        return self._members.generation if self._members is not None else 0

    def _woken(self) -> None:
        if self.ready.is_set():
            self.worker.woken()

    def _heard(self, name: str, number: int, state: str, trace: str | None) -> None:
        self.worker.heard(name, number, state, trace)

    def _config_record(self, key: bytes | None, value: bytes | None) -> None:
        levels = dict(self.configs.loggers)
        name = self.configs.apply(key, value)
        if not self.ready.is_set():
            return
        for logger, level in self.configs.loggers.items():
            if levels.get(logger) != level:
                self._level_changed(logger, level)
        if name is not None:
            self.worker.changed(name)

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
            return type_of(self.class_of(settings))
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

    def class_of(self, settings: Mapping[str, str | None]) -> type[Connector]:
        name = settings.get("connector.class")
        if not name:
            shown = ", ".join(f"{key}={printed(value)}" for key, value in settings.items())
            raise ConfigError(f"Connector config {{{shown}}} contains no connector type")
        return find_connector(name, self.plugin_path)

    def spec(self, name: str, number: int, settings: dict[str, str], tasks: list[dict[str, str]]) -> TaskSpec:
        return TaskSpec(
            group=self._group,
            connector=name,
            number=number,
            tasks=len(tasks),
            client=self._client_of(settings),
            settings=settings,
            task=tasks[number],
            worker=self._config.converters,
            providers=self._providers,
            plugin_path=self.plugin_path,
            offsets_topic=settings.get("offsets.storage.topic") or self._offsets_topic,
            offsets_file=self._offsets_file,
            exactly_once=self._exactly_once,
            redrive=self.configs.redrives.get(name) if number == 0 else None,
        )

    def _client_of(self, settings: Mapping[str, str]) -> ClientConfig:
        """The worker's client, with what a connector may have of its own."""
        kind: Kind = "consumer" if issubclass(self.class_of(settings), SinkConnector) else "producer"
        own = client_settings(kind, resolve(settings, self._providers), self._config.converters)
        return client_config(self._config.given, own, self._config.client)

    # --- what is asked for ----------------------------------------------------------------------------------

    def create(
        self, name: str, settings: Mapping[str, str | None], initial_state: str | None = None
    ) -> dict[str, Any]:
        state = {"RUNNING": STARTED, "PAUSED": PAUSED, "STOPPED": STOPPED}.get(
            "RUNNING" if initial_state is None else initial_state.upper()
        )
        if state is None:
            raise BadRequest(f"Unknown initial state {initial_state}")
        checked = self._checked(name, settings)

        def decide() -> list[Pair]:
            if name in self.configs.connectors:
                raise Conflict(f"Connector {name} already exists")
            first = [] if initial_state is None else [target_state_record(name, state)]
            return [*first, connector_record(name, checked)]

        self._decide(decide)
        return self.info(name)

    def put_config(self, name: str, settings: Mapping[str, str | None]) -> tuple[bool, dict[str, Any]]:
        """Whether it was made by this, and what it is now."""
        checked = self._checked(name, settings)
        created: list[bool] = []

        def decide() -> list[Pair]:
            created[:] = [name not in self.configs.connectors]
            return [connector_record(name, checked)]

        self._decide(decide)
        return created[0], self.info(name)

    def patch_config(self, name: str, changes: Mapping[str, str | None]) -> dict[str, Any]:
        def decide() -> list[Pair]:
            return [connector_record(name, self._checked(name, given({**self.settings(name), **changes})))]

        self._decide(decide)
        return self.info(name)

    def _checked(self, name: str, settings: Mapping[str, str | None]) -> dict[str, str]:
        """A null that may be there is no setting from here on."""
        whole = {**settings, "name": name if settings.get("name") is None else settings["name"]}
        wrong = error_text(self.validated(self.class_of(whole), whole))
        if wrong is not None:
            raise BadRequest(wrong)
        return given(whole)

    def validated(self, connector: type[Connector], settings: Mapping[str, str | None]) -> list[ConfigValue]:
        resolved = {**settings, **resolve(given(settings), self._providers)}
        return validate(connector, resolved, self._config.converters)

    @property
    def plugin_path(self) -> tuple[str, ...]:
        return tuple(self._config.value("plugin.path"))

    def _decide(self, decide: Callable[[], list[Pair]]) -> None:
        if not self.ready.is_set() or self.fenced.is_set():
            raise Conflict(
                "Cannot complete request momentarily due to stale configuration (typically caused by a "
                "concurrent config change)"
            )
        with self._commands:
            self._config_store.decide(decide)

    def delete(self, name: str) -> None:
        def decide() -> list[Pair]:
            self.settings(name)
            return [connector_record(name, None), target_state_record(name, None)]

        self._decide(decide)

    def set_target_state(self, name: str, state: str) -> None:
        def decide() -> list[Pair]:
            if name not in self.configs.connectors:
                raise NotFound(f"Unknown connector {name}")
            return [target_state_record(name, state), *(task_records(name, []) if state == STOPPED else [])]

        self._decide(decide)

    def restart(self, name: str, *, include_tasks: bool, only_failed: bool) -> dict[str, Any]:
        """Returns the state as it will be: what restarts is RESTARTING."""
        if name not in self.configs.connectors:
            raise NotFound(f"Unknown connector: {name}")
        planned = self.status(name)
        parts = [planned["connector"], *(planned["tasks"] if include_tasks else [])]
        for part in parts:
            if not only_failed or part["state"] == "FAILED":
                part["state"] = "RESTARTING"
                part.pop("trace", None)
        self._decide(lambda: [restart_record(name, include_tasks=include_tasks, only_failed=only_failed)])
        return planned

    def restart_task(self, name: str, number: int) -> None:
        if name not in self.configs.connectors:
            raise NotFound(f"Unknown connector: {name}")
        if not 0 <= number < len(self.configs.tasks.get(name, [])):
            raise NotFound(f"Unknown task: {name}-{number}")
        owner = self.worker.assignment.get(Item(name, number))
        if owner is None:
            raise Conflict(
                "Cannot complete request momentarily due to no known leader URL, likely because a rebalance "
                "was underway."
            )
        if owner != self._url:
            raise Elsewhere(owner)
        self.worker.restart_task(name, number)

    def set_cluster_level(self, logger: str, level: str) -> None:
        self._decide(lambda: [logger_record(logger, level)])

    # --- dead letters once more -----------------------------------------------------------------------------

    def redrive(self, name: str, where: str = "") -> dict[str, Any]:
        """The dead letters that are there now: all of them, or those that an expression chooses."""
        try:
            if where:
                compile_filter(where)
        except FilterError as error:
            raise BadRequest(f"where: {error}") from None
        settings = self.settings(name)
        topic = settings.get("errors.deadletterqueue.topic.name", "")
        if not issubclass(self.class_of(settings), SinkConnector) or not topic:
            raise BadRequest(
                f"Connector {name} has no dead letters: errors.deadletterqueue.topic.name is not set"
            )
        made = redrive_all(self._config.client, topic, where)
        if made is None:
            raise BadRequest(f"Topic {topic} is not there: there are no dead letters")
        self._decide(lambda: [redrive_record(name, made)])
        return self.redrive_status(name)

    def redrive_status(self, name: str) -> dict[str, Any]:
        self.settings(name)
        redrive = self.configs.redrives.get(name)
        if redrive is None:
            raise NotFound(f"No redrive of connector {name}")
        group = consumer_group(name, self.settings(name))
        left = dead_letters_left(self._config.client, redrive, group)
        return {"topic": redrive.topic, "dead_letters": left, "group": group, "done": left == 0}

    def end_redrive(self, name: str) -> None:
        self.settings(name)
        self._decide(lambda: [redrive_record(name, None)])

    # --- trying and watching --------------------------------------------------------------------------------

    def preview(self, settings: dict[str, str], records: int) -> dict[str, Any]:
        checked = self._checked(settings["name"], settings)
        spec = PreviewSpec(
            checked,
            self._config.converters,
            self._providers,
            self._config.client,
            self.plugin_path,
            records,
        )
        try:
            return preview_in_child(spec)
        except ConnectError as error:
            raise BadRequest(str(error)) from None

    def metrics(self, name: str) -> dict[str, Any]:
        """Of the tasks that run here."""
        self.settings(name)
        return {
            "tasks": [
                {
                    "id": number,
                    "read": status.read,
                    "written": status.written,
                    "commits": status.commits,
                    "lag": status.lag,
                    "commit_ms": status.commit_ms,
                }
                for number, status in sorted(self.worker.metrics().get(name, {}).items())
            ]
        }

    # --- topics (KIP-558) -----------------------------------------------------------------------------------

    def topics(self, name: str) -> list[str]:
        if not self._config.value("topic.tracking.enable"):
            raise Forbidden("Topic tracking is disabled.")
        return sorted(self.statuses.topics.get(name, {}))

    def reset_topics(self, name: str) -> None:
        if not self._config.value("topic.tracking.enable"):
            raise Forbidden("Topic tracking is disabled.")
        if not self._config.value("topic.tracking.allow.reset"):
            raise Forbidden("Topic tracking reset is disabled.")
        self.worker.writer.reset_topics(name)

    # --- offsets (KIP-875) ----------------------------------------------------------------------------------

    def offsets(self, name: str) -> list[dict[str, Any]]:
        settings = self.settings(name)
        with contextlib.closing(Cluster(self._config.client)) as cluster:
            return self._offsets(cluster, name, settings).read()

    def alter_offsets(self, name: str, entries: Sequence[dict[str, Any]] | None) -> str:
        """None for all of them, back to the beginning. Returns what to tell."""
        with self._commands:
            self._config_store.read_to_end()
            settings = self.settings(name)
            if self.configs.target_states.get(name) != STOPPED or self._runs(name):
                raise BadRequest(
                    "Connectors must be in the STOPPED state before their offsets can be modified. This can "
                    "be done for the specified connector by issuing a 'PUT' request to the "
                    f"'/connectors/{name}/stop' endpoint"
                )
            connector = self.class_of(settings)(resolve(settings, self._providers))
            with contextlib.closing(Cluster(self._config.client)) as cluster:
                try:
                    return change_offsets(self._offsets(cluster, name, settings), connector, entries)
                except BadOffsets as error:
                    raise BadRequest(str(error)) from None

    def _offsets(
        self, cluster: Cluster, name: str, settings: Mapping[str, str]
    ) -> SourceOffsets | SinkOffsets:
        if issubclass(self.class_of(settings), SinkConnector):
            return SinkOffsets(cluster, name, consumer_group(name, settings))
        topic = settings.get("offsets.storage.topic") or self._offsets_topic
        return SourceOffsets(cluster, name, topic, self._offsets_file)

    def _runs(self, name: str) -> bool:
        return name in self.worker.connectors or name in self.worker.tasks
