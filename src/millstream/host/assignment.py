"""Which lane for which unit: pure functions of what runs where, machines, and where state lies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from millstream.host.unit import UnitId


def assign(
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
