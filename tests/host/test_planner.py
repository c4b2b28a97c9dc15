"""Who runs what: the planner's rules, without sockets and clocks."""

from __future__ import annotations

from collections import Counter

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from millstream.host.planner import FIRST_PAUSE, GOOD_SECONDS, Planner
from millstream.host.unit import UnitId

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
    assert planner.plan_for("a") == [unit_id]  # a hand-over
    planner.unit_failed("a", unit_id, "fenced", 11.0, fenced=True)
    assert planner.plan_for("a") == []
    assert planner.next_try() == 11.0 + FIRST_PAUSE
    planner.tick(20.0)
    planner.unit_failed("a", unit_id, "fenced", 20.0, fenced=True)
    assert planner.next_try() == 20.0 + 2 * FIRST_PAUSE


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


class AnyOrder(RuleBasedStateMachine):
    """Lanes that do what they are told, at any time and in any order; lanes that die."""

    def __init__(self) -> None:
        super().__init__()
        self.planner = Planner(retries=1000)
        self.running: dict[str, set[UnitId]] = {}
        self.now = 0.0
        self.wanted: set[UnitId] = set()

    @rule(count=st.integers(0, 9), stateful=st.booleans())
    def set_units(self, count: int, stateful: bool) -> None:
        names = [f"0_{number}" for number in range(count)]
        self.wanted = {UnitId("app", name) for name in names}
        self.planner.set_units("app", names, names if stateful else (), now=self.now)

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

    def teardown(self) -> None:
        """When nothing happens any more, all units run, and the lanes of a machine are even."""
        if not self.running:
            return
        for _ in range(60):
            self.now += 100
            self.planner.tick(self.now)
            for lane in sorted(self.running):
                self._obey(lane)
        assert {unit_id for units in self.running.values() for unit_id in units} == self.wanted
        for machine in "xy":
            loads = [len(units) for lane, units in self.running.items() if lane.startswith(machine)]
            assert not loads or max(loads) - min(loads) <= 1, self.running


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
