"""Who runs what: the planner's rules, without sockets and clocks."""

from __future__ import annotations

from collections import Counter

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from millstream.host.planner import FENCED_PAUSE, FIRST_PAUSE, GOOD_SECONDS, KILLS, MAX_PAUSE, Planner
from millstream.host.unit import UnitId
from tests.support.effort import examples

UNITS = tuple(f"0_{number}" for number in range(6))


def _planner(
    lanes: dict[str, str], units: tuple[str, ...] = UNITS, stateful: tuple[str, ...] = ()
) -> Planner:
    planner = Planner(retries=2)
    for lane, machine in lanes.items():
        planner.lane_joined(lane, machine, 0.0)
    planner.set_units("app", units, stateful)
    return planner


def _loads(planner: Planner, *lanes: str) -> list[int]:
    return [len(planner.plan_for(lane)) for lane in lanes]


def test_units_are_spread_evenly() -> None:
    planner = _planner({"a": "m", "b": "m", "c": "m"})
    assert _loads(planner, "a", "b", "c") == [2, 2, 2]


def test_an_application_is_spread_whatever_else_a_lane_has() -> None:
    planner = _planner({"a": "m", "b": "m"}, units=("0_0",))
    planner.set_units("other", ("0_0", "0_1"))
    for lane in ("a", "b"):
        assert Counter(unit.application for unit in planner.plan_for(lane))["other"] == 1


def test_a_unit_is_given_away_only_after_its_lane_let_go() -> None:
    planner = _planner({"a": "m"}, units=("0_0", "0_1"))
    assert _loads(planner, "a") == [2]
    planner.lane_joined("b", "m", 1.0)
    (leaving,) = {UnitId("app", "0_0"), UnitId("app", "0_1")} - set(planner.plan_for("a"))
    assert planner.plan_for("b") == []
    planner.released("a", leaving, 2.0)
    assert planner.plan_for("b") == [leaving]


def test_a_lane_that_is_gone_leaves_its_units_to_the_others() -> None:
    planner = _planner({"a": "m", "b": "m"})
    planner.lane_left("a", 1.0)
    assert _loads(planner, "b") == [6]
    planner.lane_left("b", 2.0)
    planner.lane_joined("c", "m", 3.0)
    assert _loads(planner, "c") == [6]


def test_state_goes_back_to_its_machine() -> None:
    planner = _planner({"a": "one", "b": "two"}, stateful=UNITS)
    for lane in ("a", "b"):
        for unit_id in planner.plan_for(lane):
            planner.opened(lane, unit_id, 0.0)
    before = planner.plan_for("a")
    planner.lane_left("a", 1.0)
    planner.lane_joined("a2", "one", 2.0)
    # They went to the other machine meanwhile, and have opened nothing there yet.
    for unit_id in [unit_id for unit_id in before if unit_id not in planner.plan_for("b")]:
        planner.released("b", unit_id, 3.0)
    assert set(planner.plan_for("a2")) <= set(before)
    assert _loads(planner, "a2", "b") == [3, 3]


def test_state_does_not_leave_its_machine_for_a_little_evenness() -> None:
    planner = _planner({"a": "one"}, units=UNITS[:1], stateful=UNITS)
    planner.opened("a", UnitId("app", "0_0"), 0.0)
    planner.set_units("app", UNITS[:3], UNITS)
    for unit_id in planner.plan_for("a"):
        planner.opened("a", unit_id, 0.0)
    planner.lane_joined("b", "two", 1.0)
    moving = set(UNITS[:3]) - {unit_id.name for unit_id in planner.plan_for("a")}
    assert len(moving) == 1  # three against none is too much; two against one is not


def test_a_failing_unit_is_set_aside_and_tried_again_with_longer_pauses() -> None:
    planner, unit_id = _planner({"a": "m"}, units=("0_0",)), UnitId("app", "0_0")
    assert not planner.unit_failed("a", unit_id, "no", 10.0)
    assert planner.plan_for("a") == []
    assert planner.next_try() == 10.0 + FIRST_PAUSE
    assert planner.state_of(unit_id) == ("set aside", None, "no")
    planner.tick(10.0 + FIRST_PAUSE)
    assert planner.plan_for("a") == [unit_id]
    assert not planner.unit_failed("a", unit_id, "no", 20.0)
    assert planner.next_try() == 20.0 + 2 * FIRST_PAUSE
    planner.tick(30.0)
    assert planner.unit_failed("a", unit_id, "no", 40.0)
    planner.tick(1000.0)
    assert planner.state_of(unit_id)[0] == "failed"
    planner.set_units("app", ("0_0",))  # started again
    assert planner.plan_for("a") == [unit_id]


def test_a_unit_that_ran_for_long_has_all_of_its_tries_again() -> None:
    planner, unit_id = _planner({"a": "m"}, units=("0_0",)), UnitId("app", "0_0")
    now = 0.0
    for _ in range(10):
        planner.opened("a", unit_id, now)
        now += GOOD_SECONDS + 1
        assert not planner.unit_failed("a", unit_id, "now and then", now)
        now += FIRST_PAUSE
        planner.tick(now)


def test_errors_that_pass_and_fencing_never_fail_a_unit() -> None:
    planner, unit_id = _planner({"a": "m"}, units=("0_0",)), UnitId("app", "0_0")
    for number in range(20):
        now = 100.0 * number
        assert not planner.unit_failed(
            "a", unit_id, "away", now, passing=number % 2 == 0, fenced=number % 2 == 1
        )
        planner.tick(now + 90)
        assert planner.plan_for("a") == [unit_id]


def test_a_unit_that_is_fenced_again_and_again_waits_longer_each_time() -> None:
    planner, unit_id = _planner({"a": "m"}, units=("0_0",)), UnitId("app", "0_0")
    planner.unit_failed("a", unit_id, "fenced", 10.0, fenced=True)
    assert planner.plan_for("a") == []
    assert planner.next_try() == 10.0 + FENCED_PAUSE
    planner.tick(20.0)
    planner.unit_failed("a", unit_id, "fenced", 20.0, fenced=True)
    assert planner.next_try() == 20.0 + 2 * FENCED_PAUSE
    assert planner.state_of(unit_id)[0] == "waiting"  # it has done nothing wrong


def test_an_error_that_is_final_fails_it_at_once() -> None:
    planner, unit_id = _planner({"a": "m"}, units=("0_0",)), UnitId("app", "0_0")
    assert planner.unit_failed("a", unit_id, "bad record", 1.0, retries=0)


def test_an_application_that_is_removed() -> None:
    planner = _planner({"a": "m"}, units=("0_0",))
    assert _loads(planner, "a") == [1]
    planner.set_units("app", ())
    assert planner.plan_for("a") == []
    assert not planner.is_idle("app")
    planner.released("a", UnitId("app", "0_0"), 1.0)
    assert planner.is_idle("app") and planner.unit_ids("app") == []


def _obey(planner: Planner, *lanes: str, now: float = 0.0, known: dict[str, set[UnitId]]) -> None:
    """Lanes that do what they are told, until nothing changes."""
    for _ in range(10):
        for lane in lanes:
            plan = set(planner.plan_for(lane))
            running = known.setdefault(lane, set())
            for unit_id in running - plan:
                planner.released(lane, unit_id, now)
            for unit_id in plan - running:
                planner.opened(lane, unit_id, now)
            known[lane] = plan


def test_a_standby_copy_is_on_another_machine_and_takes_over_when_that_one_is_lost() -> None:
    planner, known = Planner(), {}  # type: ignore[var-annotated]
    for lane, machine in {"a": "one", "b": "two", "c": "three"}.items():
        planner.lane_joined(lane, machine, 0.0)
    planner.set_units("app", ("0_0",), ("0_0",), standbys=1)
    _obey(planner, "a", "b", "c", known=known)
    active, copy = UnitId("app", "0_0"), UnitId("app", "0_0~1")
    where = {unit_id: lane for lane, units in known.items() for unit_id in units}
    assert where.keys() == {active, copy} and where[active] != where[copy]
    lost, heir = where[active], where[copy]
    planner.lane_left(lost, 1.0)
    # In one plan: the lane closes the copy, then opens the unit.
    assert planner.plan_for(heir) == [active]
    del known[lost]
    _obey(planner, *known, known=known)
    assert {unit_id: lane for lane, units in known.items() for unit_id in units} == {
        active: heir,
        copy: ({"a", "b", "c"} - {lost, heir}).pop(),
    }
    assert planner.unit_ids("app") == [active]
    assert planner.unit_ids("app", standbys=True) == [copy]


def test_a_copy_that_fails_is_made_again_after_a_pause_for_as_long_as_it_takes() -> None:
    planner, known = Planner(retries=1), {}  # type: ignore[var-annotated]
    planner.lane_joined("a", "one", 0.0)
    planner.lane_joined("b", "two", 0.0)
    planner.set_units("app", ("0_0",), ("0_0",), standbys=1)
    _obey(planner, "a", "b", known=known)
    copy, now = UnitId("app", "0_0~1"), 0.0
    where = next(lane for lane, units in known.items() if copy in units)
    for _ in range(5):
        assert not planner.unit_failed(where, copy, "no space left", now)
        planner.tick(now + FIRST_PAUSE / 2)
        assert copy not in planner.plan_for(where)
        assert planner.state_of(copy)[0] == "set aside"
        now += MAX_PAUSE
        planner.tick(now)
        assert copy in planner.plan_for(where)
        planner.opened(where, copy, now)


def test_without_another_machine_there_is_no_copy() -> None:
    planner, known = Planner(), {}  # type: ignore[var-annotated]
    planner.lane_joined("a", "one", 0.0)
    planner.lane_joined("b", "one", 0.0)
    planner.set_units("app", ("0_0",), ("0_0",), standbys=1)
    _obey(planner, "a", "b", known=known)
    assert [unit.name for units in known.values() for unit in units] == ["0_0"]


def test_a_dedicated_unit_has_its_lane_to_itself() -> None:
    planner, known = _planner({"a": "m", "b": "m"}, units=UNITS), {}  # type: ignore[var-annotated]
    _obey(planner, "a", "b", known=known)
    planner.set_units("other", ("0_0",), dedicated=("0_0",))
    assert UnitId("other", "0_0") not in planner.plan_for("a") + planner.plan_for("b")  # not yet empty
    _obey(planner, "a", "b", known=known)
    assert sorted(len(units) for units in known.values()) == [1, 6]
    planner.set_units("other", ())
    _obey(planner, "a", "b", known=known)
    assert sorted(len(units) for units in known.values()) == [3, 3]


def test_a_unit_that_is_started_again_stays_and_so_do_its_neighbours() -> None:
    planner, known = _planner({"a": "m", "b": "m"}), {}  # type: ignore[var-annotated]
    _obey(planner, "a", "b", known=known)
    before = {lane: set(units) for lane, units in known.items()}
    again = UnitId("app", "0_3")
    lane = next(lane for lane, units in before.items() if again in units)
    planner.restart(again, 1.0)
    assert set(planner.plan_for(lane)) == before[lane] - {again}
    planner.released(lane, again, 1.0)
    assert set(planner.plan_for(lane)) == before[lane]


def test_a_unit_that_ends_its_process_again_and_again_runs_alone_and_then_fails() -> None:
    planner, known = Planner(), {}  # type: ignore[var-annotated]
    planner.lane_joined("other", "m", 0.0)
    planner.set_units("app", UNITS)
    bad = UnitId("app", "0_2")
    for number in range(KILLS + 1):
        lane = f"lane {number}"
        planner.lane_joined(lane, "m", 0.0)
        _obey(planner, "other", lane, known=known)
        where = next(found for found, units in known.items() if bad in units)
        neighbours = len(known[where]) - 1
        assert (neighbours == 0) == (number == KILLS)
        assert (bad in planner.watched(where)) == (number > 0)
        del known[where]
        failed = planner.lane_left(where, 1.0, [bad])
        assert failed == ([bad] if number == KILLS else [])
        if where == "other":
            planner.lane_joined("other", "m", 0.0)
    assert planner.state_of(bad)[0] == "failed"
    planner.restart(bad, 2.0)
    assert planner.state_of(bad)[0] == "starting"


def test_a_unit_that_gets_on_is_no_suspect() -> None:
    planner, unit_id = _planner({"a": "m"}, units=("0_0",)), UnitId("app", "0_0")
    for _ in range(2 * KILLS):
        planner.plan_for("a")
        planner.opened("a", unit_id, 0.0)
        planner.committed(unit_id)
        assert planner.lane_left("a", 0.0, [unit_id]) == []
        planner.lane_joined("a", "m", 0.0)


def test_a_lane_that_is_to_be_ended_gives_its_units_away() -> None:
    planner, known = _planner({"a": "m", "b": "m"}), {}  # type: ignore[var-annotated]
    _obey(planner, "a", "b", known=known)
    planner.lane_closing("a", 1.0)
    assert not planner.is_empty("a")
    _obey(planner, "a", "b", known=known)
    assert planner.is_empty("a")
    assert len(known["b"]) == 6


class AnyOrder(RuleBasedStateMachine):
    """Lanes that do what they are told, at any time and in any order; lanes that die."""

    def __init__(self) -> None:
        super().__init__()
        self.planner = Planner(retries=1000)
        self.running: dict[str, set[UnitId]] = {}
        self.now = 0.0
        self.wanted: set[UnitId] = set()
        self.dedicated: set[str] = set()

    @rule(
        count=st.integers(0, 9),
        stateful=st.booleans(),
        standbys=st.integers(0, 2),
        dedicated=st.sets(st.integers(0, 9)),
    )
    def set_units(self, count: int, stateful: bool, standbys: int, dedicated: set[int]) -> None:
        names = [f"0_{number}" for number in range(count)]
        self.wanted = {UnitId("app", name) for name in names}
        self.dedicated = {f"0_{number}" for number in dedicated}
        self.planner.set_units(
            "app",
            names,
            names if stateful else (),
            now=self.now,
            dedicated=self.dedicated,
            standbys=standbys,
        )

    @rule(number=st.integers(0, 9))
    def restart(self, number: int) -> None:
        self.planner.restart(UnitId("app", f"0_{number}"), self.now)

    @precondition(lambda self: len(self.running) < 5)
    @rule(number=st.integers(0, 99), machine=st.sampled_from("xy"))
    def join(self, number: int, machine: str) -> None:
        lane = f"{machine}{number}"
        if lane not in self.running:
            self.running[lane] = set()
            self.planner.lane_joined(lane, machine, self.now)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        lane = data.draw(st.sampled_from(sorted(self.running)))
        units = self.running.pop(lane)
        in_turn = data.draw(st.sets(st.sampled_from(sorted(units)))) if units else set()
        for unit_id in self.planner.lane_left(lane, self.now, in_turn):
            self.planner.restart(unit_id, self.now)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        lane = data.draw(st.sampled_from(sorted(self.running)))
        self.planner.lane_closing(lane, self.now)
        self._obey(lane)
        assert not self.running[lane]
        del self.running[lane]
        self.planner.lane_left(lane, self.now)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def obey(self, data: st.DataObject) -> None:
        """A lane looks at its plan: lets go of what is not in it, then opens what is new."""
        self._obey(data.draw(st.sampled_from(sorted(self.running))))

    def _obey(self, lane: str) -> None:
        plan = set(self.planner.plan_for(lane))
        for unit_id in self.running[lane] - plan:
            self.running[lane].discard(unit_id)
            self.planner.released(lane, unit_id, self.now)
        for unit_id in plan - self.running[lane]:
            self.running[lane].add(unit_id)
            self.planner.opened(lane, unit_id, self.now)

    @precondition(lambda self: any(self.running.values()))
    @rule(data=st.data(), fenced=st.booleans())
    def fail(self, data: st.DataObject, fenced: bool) -> None:
        lane = data.draw(st.sampled_from(sorted(lane for lane, units in self.running.items() if units)))
        unit_id = data.draw(st.sampled_from(sorted(self.running[lane])))
        self.running[lane].discard(unit_id)
        self.planner.unit_failed(lane, unit_id, "no", self.now, fenced=fenced)

    @rule(seconds=st.floats(0, 100))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.planner.tick(self.now)

    @invariant()
    def nobody_shares_a_unit(self) -> None:
        often = Counter(unit_id for units in self.running.values() for unit_id in units)
        assert all(count == 1 for count in often.values()), often

    @invariant()
    def nobody_shares_a_folder(self) -> None:
        often = Counter(
            (lane[0], unit_id.name.partition("~")[0])
            for lane, units in self.running.items()
            for unit_id in units
        )
        assert all(count == 1 for count in often.values()), often

    def teardown(self) -> None:
        """When nothing happens any more, all units run, and the lanes of a machine are even."""
        if not self.running:
            return
        for _ in range(60):
            self.now += 100
            self.planner.tick(self.now)
            for lane in sorted(self.running):
                self._obey(lane)
        running = {unit_id for units in self.running.values() for unit_id in units}
        assert {unit_id for unit_id in running if "~" not in unit_id.name} == self.wanted
        for units in self.running.values():
            alone = [unit_id for unit_id in units if unit_id.name in self.dedicated]
            assert len(units) == 1 or not alone or len(self.running) <= len(self.dedicated), self.running
        if self.dedicated or running != self.wanted:
            return
        for machine in "xy":
            loads = [len(units) for lane, units in self.running.items() if lane.startswith(machine)]
            assert not loads or max(loads) - min(loads) <= 1, self.running


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=examples(200), stateful_step_count=40, deadline=None)
