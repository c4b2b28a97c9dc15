"""The tasks that this worker runs: one application of the host per connector, one unit per task.

A task that failed may restart by itself (`millstream.restarts`): the n-th time after n*n+n times
`millstream.restarts.backoff.ms`, an hour at most.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from millstream.client import ClientConfig
from millstream.connect.herding.log_secrets import hide_in_logs
from millstream.connect.runtime.sink_unit import SinkUnit
from millstream.connect.runtime.source_unit import SourceUnit
from millstream.connect.runtime.task_spec import TaskSpec
from millstream.host.control import AnyHost
from millstream.host.unit import Application, LaneContext, Unit, UnitId, UnitState, UnitStatus

log = logging.getLogger("millstream.connect")

LONGEST_BACKOFF = 3600.0
Heard = Callable[[str, int, str, str | None], None]
"""A connector's name, a task's number, its state and trace."""


@dataclass(frozen=True, slots=True)
class OpenTask:
    """Makes a unit of a connector, in the process where it runs."""

    specs: tuple[TaskSpec, ...]
    sink: bool

    def __call__(self, name: str, lane: LaneContext) -> Unit:
        spec = self.specs[int(name)]
        hide_in_logs(spec)
        return SinkUnit(spec, lane) if self.sink else SourceUnit(spec, lane)


@dataclass(slots=True)
class _Running:
    open_task: OpenTask
    numbers: tuple[int, ...]
    restarts: int
    backoff: float
    failures: dict[int, int] = field(default_factory=dict)
    restart_at: dict[int, float] = field(default_factory=dict)


class Tasks:
    """Used by one thread; `heard` is called by threads of the host."""

    def __init__(
        self, host: AnyHost, client: ClientConfig, prefix: str, heard: Heard, stop_seconds: float
    ) -> None:
        """`stop_seconds`: how long to wait for the last commits of tasks that end."""
        self._host, self._client, self._prefix, self._heard = host, client, prefix, heard
        self._stop_seconds = stop_seconds
        self._running: dict[str, _Running] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._running

    @property
    def names(self) -> list[str]:
        return list(self._running)

    def numbers(self, name: str) -> tuple[int, ...]:
        running = self._running.get(name)
        return () if running is None else running.numbers

    def new(self, name: str, open_task: OpenTask, numbers: tuple[int, ...]) -> tuple[int, ...]:
        """Those that `run` would open, or open anew."""
        running = self._running.get(name)
        if running is None or running.open_task != open_task:
            return numbers
        return tuple(number for number in numbers if number not in running.numbers)

    def run(
        self, name: str, open_task: OpenTask, numbers: tuple[int, ...]
    ) -> dict[str, dict[str, UnitStatus]]:
        """These tasks and no others. Returns what those had done that ended for it."""
        running, ended = self._running.get(name), {}
        if not numbers or (running is not None and running.open_task != open_task):
            ended, running = self.end(name), None
        if not numbers:
            return ended
        if running is not None:
            if running.numbers != numbers:
                running.numbers = numbers
                names = [str(number) for number in numbers]
                self._host.set_units(self._application(name), names, waiting=names)
            return ended
        settings = open_task.specs[0].settings
        self._running[name] = made = _Running(
            open_task,
            numbers,
            int(settings.get("millstream.restarts", "0")),
            int(settings.get("millstream.restarts.backoff.ms", "60000")) / 1000,
        )
        units = tuple(str(number) for number in numbers)
        dedicated = settings.get("millstream.dedicated", "false").lower() == "true"
        application = Application(
            self._application(name),
            self._client,
            open_task,
            units,
            waiting=frozenset(units),
            dedicated=frozenset(units) if dedicated else frozenset(),
        )
        self._host.add(application, lambda unit, state: self._unit_changed(name, made, unit, state))
        return ended

    def end(self, *names: str) -> dict[str, dict[str, UnitStatus]]:
        """The tasks of connectors, which have their time to end together. Returns what each task had done.
        One that waits for a server that is away is not waited for: whoever runs it next fences it."""
        leaving = {self._application(name): name for name in names if self._running.pop(name, None)}
        if not leaving:
            return {}
        found = {}
        for application, ended in self._host.remove_all(leaving, self._stop_seconds).items():
            name = leaving[application]
            if not ended.in_time:
                log.error("tasks of %s have not ended within %.0f s", name, self._stop_seconds)
            found[name] = ended.statuses
        return found

    def restart(self, name: str, number: int) -> None:
        running = self._running[name]
        running.restart_at.pop(number, None)
        running.failures.pop(number, None)
        self._host.restart(self._application(name), str(number))

    def all_states(self) -> dict[str, dict[str, UnitState]]:
        """Of each connector, asked at once."""
        applications = {self._application(name): name for name in list(self._running)}
        found = self._host.states_of(applications)
        return {name: found.get(application, {}) for application, name in applications.items()}

    def restart_due(self, now: float) -> list[tuple[str, int]]:
        """Restart what has waited long enough."""
        done = []
        for name, running in self._running.items():
            for number, at in list(running.restart_at.items()):
                if at <= now:
                    del running.restart_at[number]
                    self._host.restart(self._application(name), str(number))
                    done.append((name, number))
        return done

    def next_restart(self) -> float | None:
        times = [at for running in self._running.values() for at in running.restart_at.values()]
        return min(times, default=None)

    def _application(self, name: str) -> str:
        return f"{self._prefix}:{name}"

    def _unit_changed(self, name: str, running: _Running, unit: UnitId, state: UnitState) -> None:
        if self._running.get(name) is not running:
            return
        number = int(unit.name)
        if state.state == "running":
            self._heard(name, number, "RUNNING", None)
        elif state.state == "failed":
            count = running.failures.get(number, 0)
            if count < running.restarts:
                running.failures[number] = count + 1
                pause = min((count * count + count) * running.backoff, LONGEST_BACKOFF)
                running.restart_at[number] = time.monotonic() + pause
                log.warning("%s-%d failed and restarts in %.0f s", name, number, pause)
            self._heard(name, number, "FAILED", f"{state.error}\n{state.trace}")
