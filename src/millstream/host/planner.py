"""Who runs what: the planner's decisions, without sockets, threads and clocks.

Events go in (lanes come and go, units are added, released, fail), and for every lane there is the set of
units that it should run now. Rules:

- A unit is with one lane at a time. It is given away only after the lane that had it said that it let go, or
  is gone.
- It stays where it is. When lanes come or go, as few units move as make the lanes even.
- A unit with state goes back to the machine where its state lies, unless the lanes there have far more to do
  than others. If that machine is gone, it goes to a lane that keeps a standby copy of it.
- A standby copy is never on the machine of its unit, nor on that of another copy. Where a unit comes to a
  machine that has a copy, the copy ends first: both would work in the same folder.
- A unit that fails is set aside and tried again after a pause that doubles; after `retries` tries in a row it
  has failed, which is for its application to judge. Its neighbours notice nothing.
- A unit in whose turns its process has died `KILLS` times runs alone in a lane; if that one dies as well, the
  unit has failed. A dedicated unit has a lane of its own from the beginning. The last lane that is left for
  everybody is never given away.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from millstream.host.assignment import assign, even_out
from millstream.host.unit import UnitId

FIRST_PAUSE, MAX_PAUSE = 1.0, 60.0
FENCED_PAUSE = 1.5
"""Longer than a planner that was replaced takes to hear of it (`membership`)."""
GOOD_SECONDS = 60.0
"""A unit that ran for so long has all of its tries again."""
KILLS = 3

WAITING, STARTING, RUNNING, SET_ASIDE, FAILED = "waiting", "starting", "running", "set aside", "failed"


@dataclass(slots=True)
class _Unit:
    stateful: bool = False
    dedicated: bool = False
    standby_of: UnitId | None = None
    lane: str | None = None
    announced: bool = False
    releasing: bool = False
    unwanted: bool = False
    target: str | None = None
    home: str | None = None
    failures: int = 0
    fencings: int = 0
    kills: int = 0
    suspect: bool = False
    opened_at: float = 0.0
    again_at: float = 0.0
    error: str | None = None
    failed: bool = False

    @property
    def alone(self) -> bool:
        return self.dedicated or self.kills >= KILLS

    @property
    def runs(self) -> bool:
        return self.lane is not None and not self.releasing

    def try_again(self, now: float) -> None:
        """As if nothing had happened."""
        self.failed, self.failures, self.kills, self.again_at = False, 0, 0, now


@dataclass(slots=True)
class _Lane:
    machine: str
    closing: bool = False


@dataclass(slots=True)
class Planner:
    """`retries`: how often a unit is tried again before it has failed."""

    retries: int = 5
    _units: dict[UnitId, _Unit] = field(default_factory=dict)
    _lanes: dict[str, _Lane] = field(default_factory=dict)

    # --- events ---------------------------------------------------------------------------------------------

    def set_units(
        self,
        application: str,
        names: Iterable[str],
        stateful: Iterable[str] = (),
        *,
        now: float = 0.0,
        dedicated: Iterable[str] = (),
        standbys: int = 0,
    ) -> None:
        """The units of an application from now on. Those that are gone are released; a unit that had failed
        is tried again. Each with state has so many standby copies."""
        wanted: dict[str, UnitId | None] = dict.fromkeys(names)
        with_state, of_their_own = set(stateful), set(dedicated)
        for name in list(wanted):
            if name in with_state:
                for number in range(1, standbys + 1):
                    wanted[f"{name}~{number}"] = UnitId(application, name)
        for unit_id, unit in list(self._units.items()):
            if unit_id.application == application and unit_id.name not in wanted:
                if unit.announced:
                    unit.releasing = unit.unwanted = True
                else:
                    del self._units[unit_id]
        for name, standby_of in wanted.items():
            unit = self._units.setdefault(UnitId(application, name), _Unit())
            if unit.unwanted:  # asked for again before its lane let go: it comes back then
                unit.unwanted, unit.target = False, unit.lane
            unit.stateful, unit.dedicated = name in with_state, name in of_their_own
            unit.standby_of = standby_of
            if unit.failed:
                unit.try_again(now)
        self._assign(now)

    def restart(self, unit_id: UnitId, now: float) -> None:
        """Close it and open it again where it is, with all of its tries. Its neighbours run on."""
        unit = self._units.get(unit_id)
        if unit is not None and not unit.unwanted:
            unit.try_again(now)
            if unit.announced and not unit.releasing:
                unit.releasing, unit.target = True, unit.lane
            self._assign(now)

    def lane_joined(self, lane: str, machine: str, now: float) -> None:
        self._lanes[lane] = _Lane(machine)
        self._assign(now)

    def lane_left(self, lane: str, now: float, in_turn: Collection[UnitId] = ()) -> list[UnitId]:
        """Whatever it ran may run elsewhere: who still believes to be running it is fenced by whoever
        continues. Those `in_turn` had theirs when the lane died. Returns what has failed by that."""
        self._lanes.pop(lane, None)
        failed = []
        for unit_id, unit in list(self._units.items()):
            if unit.lane != lane:
                continue
            unit.suspect = True
            if unit_id in in_turn and not unit.unwanted:
                unit.failed = unit.alone and unit.kills >= KILLS
                unit.kills += 1
                unit.error = f"its process has ended in its turn, {unit.kills} times"
                if unit.failed:
                    failed.append(unit_id)
            self._let_go(unit_id, unit)
        self._assign(now)
        return failed

    def lane_closing(self, lane: str, now: float) -> None:
        """The lane will be ended as soon as its units have gone elsewhere."""
        if lane in self._lanes:
            self._lanes[lane].closing = True
            for unit in self._units.values():
                if unit.lane == lane:
                    if unit.announced:
                        unit.releasing, unit.target = True, None
                    else:
                        unit.lane = None
            self._assign(now)

    def released(self, lane: str, unit_id: UnitId, now: float) -> None:
        unit = self._units.get(unit_id)
        if unit is not None and unit.lane == lane:
            self._let_go(unit_id, unit)
            self._assign(now)

    def opened(self, lane: str, unit_id: UnitId, now: float) -> bool:
        """It runs, and what it keeps lies on that lane's machine from now on. False if that lane is not to
        run it any more."""
        unit = self._units.get(unit_id)
        if unit is None or unit.lane != lane:
            return False
        unit.opened_at = now
        unit.home = self._lanes[lane].machine if lane in self._lanes else unit.home
        return True

    def committed(self, unit_id: UnitId) -> None:
        """It gets on: what has killed its process was somebody else."""
        unit = self._units.get(unit_id)
        if unit is not None and (unit.kills or unit.suspect):
            unit.kills, unit.suspect = 0, False

    def unit_failed(
        self,
        lane: str,
        unit_id: UnitId,
        error: str,
        now: float,
        *,
        fenced: bool = False,
        passing: bool = False,
        stuck: bool = False,
        retries: int | None = None,
    ) -> bool:
        """The lane has closed it. A unit that was fenced has done nothing wrong: someone else was taken to be
        its lane. One that cannot reach its cluster (`passing`) is tried again for as long as it takes, and so
        is a standby copy: it has no application that would judge it. One that was stuck goes on alone. True
        if this was its last try."""
        unit = self._units.get(unit_id)
        if unit is None or unit.lane != lane:
            return False
        unit.error = error
        if unit.opened_at and now - unit.opened_at > GOOD_SECONDS:
            unit.failures = unit.fencings = 0
        if fenced:
            # A transaction that ran into its timeout, or another host with the same application: neither of
            # them would get anything done if both came back at once.
            pause = min(FENCED_PAUSE * 2.0**unit.fencings, MAX_PAUSE)
            unit.fencings += 1
        else:
            unit.failures += 1
            pause = _pause(unit.failures)
        if stuck:
            unit.kills = max(unit.kills, KILLS)
        unit.again_at = now + pause
        goes_on = fenced or passing or (unit.standby_of is not None and not stuck)
        last = unit.failures > (self.retries if retries is None else retries) and not goes_on
        unit.opened_at = 0.0
        unit.failed = unit.failed or last
        unwanted = unit.unwanted
        self._let_go(unit_id, unit)
        self._assign(now)
        return last and not unwanted

    def fail_all(self, error: str) -> None:
        """Nothing can run any more: every unit has failed, and lanes that are left let go of theirs."""
        for unit in self._units.values():
            unit.failed, unit.error = True, error
            self._move(unit, None)

    def tick(self, now: float) -> None:
        """Time has passed: units that were set aside may be due, and who ran alone for long is trusted."""
        for unit in self._units.values():
            if (unit.kills or unit.suspect) and unit.opened_at and now - unit.opened_at > GOOD_SECONDS:
                unit.kills, unit.suspect = 0, False
        self._assign(now)

    # --- answers --------------------------------------------------------------------------------------------

    def plan_for(self, lane: str) -> list[UnitId]:
        """What this lane should run now. Whoever asks tells the lane: what it has been told, it has to let go
        of before another lane gets it."""
        found = sorted(
            unit_id
            for unit_id, unit in self._units.items()
            if unit.lane == lane and not unit.releasing and (unit.announced or self._may_start(unit_id, unit))
        )
        for unit_id in found:
            self._units[unit_id].announced = True
        return found

    def watched(self, lane: str) -> list[UnitId]:
        """Those whose turns the lane should tell: one of them may have ended its process."""
        return sorted(
            unit_id
            for unit_id, unit in self._units.items()
            if unit.lane == lane and (unit.suspect or unit.kills)
        )

    def next_try(self) -> float | None:
        """When a unit that was set aside is due."""
        return min(
            (
                unit.again_at
                for unit in self._units.values()
                if unit.lane is None and not unit.failed and unit.standby_of is None
            ),
            default=None,
        )

    def is_idle(self, application: str) -> bool:
        """Whether no lane has a unit of it."""
        return not any(
            unit.lane is not None
            for unit_id, unit in self._units.items()
            if unit_id.application == application
        )

    def is_empty(self, lane: str) -> bool:
        return not any(unit.lane == lane for unit in self._units.values())

    def state_of(self, unit_id: UnitId) -> tuple[str, str | None, str | None]:
        """running, starting, waiting, set aside or failed; its lane; its last error."""
        unit = self._units[unit_id]
        if unit.failed:
            state = FAILED
        elif unit.lane is None:
            state = SET_ASIDE if unit.failures else WAITING
        else:
            state = RUNNING if unit.opened_at else STARTING
        return state, unit.lane, unit.error

    def unit_ids(self, application: str, *, standbys: bool = False) -> list[UnitId]:
        return sorted(
            unit_id
            for unit_id, unit in self._units.items()
            if unit_id.application == application and (unit.standby_of is not None) == standbys
        )

    # --- placing --------------------------------------------------------------------------------------------

    def _let_go(self, unit_id: UnitId, unit: _Unit) -> None:
        if unit.unwanted:
            del self._units[unit_id]
        else:
            unit.lane, unit.releasing, unit.announced, unit.opened_at = None, False, False, 0.0

    def _may_start(self, unit_id: UnitId, unit: _Unit) -> bool:
        """Not before whoever is in its way has gone: its copy on that machine (in the same lane it is closed
        first), and everybody else in a lane that it is to have alone."""
        if unit.lane is None or unit.lane not in self._lanes:
            return False
        machine = self._lanes[unit.lane].machine
        for other_id, other in self._units.items():
            if other is unit or other.lane is None or not other.announced:
                continue
            there = self._lanes.get(other.lane)
            if self._same(unit_id, unit, other_id, other) and there is not None and there.machine == machine:
                return other.lane == unit.lane and other.releasing
            if unit.alone and other.lane == unit.lane and other.releasing:
                return False
        return True

    @staticmethod
    def _same(unit_id: UnitId, unit: _Unit, other_id: UnitId, other: _Unit) -> bool:
        return (unit.standby_of or unit_id) == (other.standby_of or other_id)

    def _assign(self, now: float) -> None:
        machines = {name: lane.machine for name, lane in self._lanes.items() if not lane.closing}
        if not machines:
            return
        active = {unit_id: unit for unit_id, unit in self._units.items() if unit.standby_of is None}
        homes = {unit_id: unit.home for unit_id, unit in active.items() if unit.stateful}
        due = {
            unit_id: unit
            for unit_id, unit in sorted(active.items())
            if unit.lane is None and not unit.failed and unit.again_at <= now
        }
        shared = self._give_alone(active, due, machines)
        self._to_their_copies(due, shared)
        free: list[UnitId] = []
        for unit_id, unit in due.items():
            if unit.lane is None:
                if unit.target in shared:
                    unit.lane = unit.target
                else:
                    free.append(unit_id)
            unit.target = None
        for unit_id, lane in assign(free, self._running(shared), shared, homes).items():
            self._units[unit_id].lane = lane
        if not any(unit.releasing for unit in active.values()):
            for unit_id, lane in even_out(self._running(shared), shared, homes).items():
                self._move(self._units[unit_id], lane)
        self._assign_standbys(shared, now)

    def _give_alone(
        self, active: Mapping[UnitId, _Unit], due: Mapping[UnitId, _Unit], machines: dict[str, str]
    ) -> dict[str, str]:
        """A lane for each unit that is to be alone, as long as one is left. Returns the lanes for all others,
        who leave those lanes."""
        taken = {unit.lane for unit in active.values() if unit.alone and unit.runs}
        # Some are alone in a lane that they share, because there was no other.
        owners: dict[str, UnitId] = {}
        for unit_id, unit in sorted(active.items()):
            lane = unit.lane if unit.alone and unit.runs else None
            if lane in machines and lane is not None and lane not in owners:
                if len(owners) >= len(machines) - 1:
                    break
                owners[lane] = unit_id
        for unit_id, unit in due.items():
            if not unit.alone or len(owners) >= len(machines) - 1:
                continue
            spare = [lane for lane in machines if lane not in owners and lane not in taken]
            if not spare:
                continue
            loads = self._running(machines)
            unit.lane = min(spare, key=lambda lane: (sum(on == lane for on in loads.values()), lane))
            owners[unit.lane] = unit_id
        for unit_id, unit in self._units.items():
            if unit.runs and unit.lane is not None and owners.get(unit.lane, unit_id) != unit_id:
                self._move(unit, None)
        return {lane: machine for lane, machine in machines.items() if lane not in owners}

    def _to_their_copies(self, due: Mapping[UnitId, _Unit], lanes: Mapping[str, str]) -> None:
        """Units whose machine is gone, to lanes with a standby copy, which ends with that."""
        there = set(lanes.values())
        for unit_id, unit in due.items():
            if unit.lane is not None or not unit.stateful or unit.home in there:
                continue
            for copy in self._copies(unit_id):
                if copy.runs and copy.opened_at and copy.lane in lanes:
                    unit.lane = copy.lane
                    self._move(copy, None)
                    break

    def _copies(self, unit_id: UnitId) -> list[_Unit]:
        return [unit for _, unit in sorted(self._units.items()) if unit.standby_of == unit_id]

    def _assign_standbys(self, lanes: Mapping[str, str], now: float) -> None:
        for _, unit in sorted(self._units.items()):
            if unit.standby_of is None or unit.failed:
                continue
            origin = self._units.get(unit.standby_of)
            kept = [origin, *self._copies(unit.standby_of)]
            used = {
                self._lanes[other.lane].machine
                for other in kept
                if other is not None and other is not unit and other.lane is not None
                if other.lane in self._lanes
            }
            if unit.runs and unit.lane is not None and lanes.get(unit.lane) in {None, *used}:
                self._move(unit, None)
            due = unit.lane is None and unit.again_at <= now
            if due and origin is not None and origin.lane is not None:
                loads = self._running(lanes, standbys=True)
                free = [lane for lane, machine in lanes.items() if machine not in used]
                if free:
                    home = unit.home

                    def cost(
                        lane: str, home: str | None = home, loads: Mapping[UnitId, str] = loads
                    ) -> tuple[bool, int, str]:
                        return lanes[lane] != home, sum(on == lane for on in loads.values()), lane

                    unit.lane = min(free, key=cost)

    @staticmethod
    def _move(unit: _Unit, lane: str | None) -> None:
        if unit.announced:
            unit.releasing, unit.target = True, lane
        else:
            unit.lane = lane

    def _running(self, lanes: Mapping[str, str], *, standbys: bool = False) -> dict[UnitId, str]:
        return {
            unit_id: unit.lane
            for unit_id, unit in self._units.items()
            if unit.lane in lanes and unit.lane is not None and not unit.releasing
            if standbys or unit.standby_of is None
        }


def _pause(failures: int) -> float:
    return min(FIRST_PAUSE * 2.0 ** (failures - 1), MAX_PAUSE)
