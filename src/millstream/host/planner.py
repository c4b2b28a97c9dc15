"""Who runs what: the planner's decisions, without sockets, threads and clocks.

Events go in (lanes come and go, units are added, released, fail), and for every lane there is the set of
units that it should run now. Rules:

- A unit is with one lane at a time. It is given away only after the lane that had it said that it let go, or
  is gone.
- It stays where it is. When lanes come or go, as few units move as make the lanes even.
- A unit with state goes back to the machine where its state lies, unless the lanes there have far more to do
  than others.
- A unit that fails is set aside and tried again after a pause that doubles; after `retries` tries in a row it
  has failed, which is for its application to judge. Its neighbours notice nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from millstream.host.unit import UnitId

FIRST_PAUSE, MAX_PAUSE = 1.0, 60.0
GOOD_SECONDS = 60.0
"""A unit that ran for so long has all of its tries again."""


@dataclass(slots=True)
class _Unit:
    stateful: bool = False
    lane: str | None = None
    announced: bool = False
    releasing: bool = False
    unwanted: bool = False
    target: str | None = None
    home: str | None = None
    failures: int = 0
    fencings: int = 0
    opened_at: float = 0.0
    again_at: float = 0.0
    error: str | None = None
    failed: bool = False


@dataclass(slots=True)
class _Lane:
    machine: str


@dataclass(slots=True)
class Planner:
    """`retries`: how often a unit is tried again before it has failed."""

    retries: int = 5
    _units: dict[UnitId, _Unit] = field(default_factory=dict)
    _lanes: dict[str, _Lane] = field(default_factory=dict)

    # --- events ---------------------------------------------------------------------------------------------

    def set_units(
        self, application: str, names: Iterable[str], stateful: Iterable[str] = (), *, now: float = 0.0
    ) -> None:
        """The units of an application from now on. Those that are gone are released; a unit that had failed
        is tried again."""
        wanted, with_state = set(names), set(stateful)
        for unit_id, unit in list(self._units.items()):
            if unit_id.application == application and unit_id.name not in wanted:
                if unit.announced:
                    unit.releasing = unit.unwanted = True
                else:
                    del self._units[unit_id]
        for name in wanted:
            unit = self._units.setdefault(UnitId(application, name), _Unit())
            unit.stateful, unit.unwanted = name in with_state, False
            if unit.failed:
                unit.failed, unit.failures, unit.again_at = False, 0, now
        self._place(now)

    def lane_joined(self, lane: str, machine: str, now: float) -> None:
        self._lanes[lane] = _Lane(machine)
        self._place(now)

    def lane_left(self, lane: str, now: float) -> None:
        """Whatever it ran may run elsewhere: who still believes to be running it is fenced by whoever
        continues."""
        self._lanes.pop(lane, None)
        for unit_id, unit in list(self._units.items()):
            if unit.lane == lane:
                self._let_go(unit_id, unit)
        self._place(now)

    def released(self, lane: str, unit_id: UnitId, now: float) -> None:
        unit = self._units.get(unit_id)
        if unit is not None and unit.lane == lane:
            self._let_go(unit_id, unit)
            self._place(now)

    def opened(self, lane: str, unit_id: UnitId, now: float) -> None:
        """It runs, and what it keeps lies on that lane's machine from now on."""
        unit = self._units.get(unit_id)
        if unit is not None and unit.lane == lane:
            unit.opened_at = now
            unit.home = self._lanes[lane].machine if lane in self._lanes else unit.home

    def unit_failed(
        self,
        lane: str,
        unit_id: UnitId,
        error: str,
        now: float,
        *,
        fenced: bool = False,
        passing: bool = False,
        retries: int | None = None,
    ) -> bool:
        """The lane has closed it. A unit that was fenced has done nothing wrong: someone else was taken to be
        its lane. One that cannot reach its cluster (`passing`) is tried again for as long as it takes. True
        if this was its last try."""
        unit = self._units.get(unit_id)
        if unit is None or unit.lane != lane:
            return False
        unit.error = error
        if unit.opened_at and now - unit.opened_at > GOOD_SECONDS:
            unit.failures = unit.fencings = 0
        if fenced:
            # Once is a hand-over. Again and again is another host with the same application: neither of them
            # would get anything done if both came back at once.
            pause = _pause(unit.fencings) if unit.fencings else 0.0
            unit.fencings += 1
        else:
            unit.failures += 1
            pause = _pause(unit.failures)
        unit.again_at = now + pause
        last = unit.failures > (self.retries if retries is None else retries) and not (fenced or passing)
        unit.opened_at = 0.0
        unit.failed = unit.failed or last
        unwanted = unit.unwanted
        self._let_go(unit_id, unit)
        self._place(now)
        return last and not unwanted

    def tick(self, now: float) -> None:
        """Time has passed: units that were set aside may be due."""
        self._place(now)

    # --- answers --------------------------------------------------------------------------------------------

    def plan_for(self, lane: str) -> list[UnitId]:
        """What this lane should run now. Whoever asks tells the lane: what it has been told, it has to let go
        of before another lane gets it."""
        found = sorted(
            unit_id for unit_id, unit in self._units.items() if unit.lane == lane and not unit.releasing
        )
        for unit_id in found:
            self._units[unit_id].announced = True
        return found

    def next_try(self) -> float | None:
        """When a unit that was set aside is due."""
        return min(
            (unit.again_at for unit in self._units.values() if unit.lane is None and not unit.failed),
            default=None,
        )

    def is_idle(self, application: str) -> bool:
        """Whether no lane has a unit of it."""
        return not any(
            unit.lane is not None
            for unit_id, unit in self._units.items()
            if unit_id.application == application
        )

    def state_of(self, unit_id: UnitId) -> tuple[str, str | None, str | None]:
        """running, waiting, set aside or failed; its lane; its last error."""
        unit = self._units[unit_id]
        if unit.failed:
            state = "failed"
        elif unit.lane is None:
            state = "set aside" if unit.failures else "waiting"
        else:
            state = "running" if unit.opened_at else "starting"
        return state, unit.lane, unit.error

    def unit_ids(self, application: str) -> list[UnitId]:
        return sorted(unit_id for unit_id in self._units if unit_id.application == application)

    # --- placing --------------------------------------------------------------------------------------------

    def _let_go(self, unit_id: UnitId, unit: _Unit) -> None:
        if unit.unwanted:
            del self._units[unit_id]
        else:
            unit.lane, unit.releasing, unit.announced, unit.opened_at = None, False, False, 0.0

    def _place(self, now: float) -> None:
        if not self._lanes:
            return
        machines = {name: lane.machine for name, lane in self._lanes.items()}
        homes = {unit_id: unit.home for unit_id, unit in self._units.items() if unit.stateful}
        free: list[UnitId] = []
        for unit_id, unit in sorted(self._units.items()):
            if unit.lane is None and not unit.failed and unit.again_at <= now:
                if unit.target in machines:
                    unit.lane = unit.target
                else:
                    free.append(unit_id)
                unit.target = None
        for unit_id, lane in place(free, self._running(), machines, homes).items():
            self._units[unit_id].lane = lane
        if not any(unit.releasing for unit in self._units.values()):
            for unit_id, lane in even_out(self._running(), machines, homes).items():
                unit = self._units[unit_id]
                if unit.announced:
                    unit.releasing, unit.target = True, lane
                else:
                    unit.lane = lane

    def _running(self) -> dict[UnitId, str]:
        return {
            unit_id: unit.lane
            for unit_id, unit in self._units.items()
            if unit.lane is not None and not unit.releasing
        }


def _pause(failures: int) -> float:
    return min(FIRST_PAUSE * 2.0 ** (failures - 1), MAX_PAUSE)


def place(
    free: Iterable[UnitId],
    running: Mapping[UnitId, str],
    machines: Mapping[str, str],
    homes: Mapping[UnitId, str | None],
) -> dict[UnitId, str]:
    """A lane for every unit that has none: the one with the fewest units of its application, then with the
    fewest at all; for a unit with state, on the machine where it lies if that is not the fuller by far."""
    loads = _loads(running, machines)
    placed: dict[UnitId, str] = {}
    for unit_id in free:
        fewest = min(len(units) for units in loads.values())

        def cost(lane: str, unit_id: UnitId = unit_id, fewest: int = fewest) -> tuple[bool, int, int, str]:
            units = loads[lane]
            home = homes.get(unit_id)
            away = home is not None and machines[lane] != home
            same = sum(other.application == unit_id.application for other in units)
            return away or _crowded(len(units), fewest), same, len(units), lane

        lane = min(loads, key=cost)
        loads[lane].append(unit_id)
        placed[unit_id] = lane
    return placed


def even_out(
    running: Mapping[UnitId, str], machines: Mapping[str, str], homes: Mapping[UnitId, str | None]
) -> dict[UnitId, str]:
    """Which units should move where, because their lane has at least two more than another: as few as make
    them even. State leaves its machine only if that is the fuller by far."""
    loads = _loads(running, machines)
    moves: dict[UnitId, str] = {}
    while loads:
        fullest = max(loads, key=lambda lane: (len(loads[lane]), lane))
        emptiest = min(loads, key=lambda lane: (len(loads[lane]), lane))
        if len(loads[fullest]) - len(loads[emptiest]) < 2:
            break
        crowded = _crowded(len(loads[fullest]), len(loads[emptiest]))
        movable = [
            unit_id
            for unit_id in loads[fullest]
            if crowded or homes.get(unit_id) in (None, machines[emptiest])
        ]
        if not movable:
            break
        unit_id = min(movable, key=lambda unit: (homes.get(unit) not in (None, machines[emptiest]), unit))
        loads[fullest].remove(unit_id)
        loads[emptiest].append(unit_id)
        moves[unit_id] = emptiest
    return moves


def _loads(running: Mapping[UnitId, str], machines: Mapping[str, str]) -> dict[str, list[UnitId]]:
    return {lane: sorted(unit for unit, where in running.items() if where == lane) for lane in machines}


def _crowded(units: int, fewest: int) -> bool:
    """Whether a lane has so much more to do than the idlest that state had better be built up elsewhere."""
    return units > 2 * fewest + 1
