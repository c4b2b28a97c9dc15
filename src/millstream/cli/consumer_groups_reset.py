"""`millstream consumer-groups --reset-offsets`: new offsets for groups that have no members, planned first,
then committed."""

import csv
import io
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from millstream.cli.consumer_groups import named_partitions, sentence
from millstream.cli.errors import CommandFailed, UsageError
from millstream.cli.output import Report, emit
from millstream.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from millstream.client.groups import Groups

FAILED = "Error: Executing consumer group command failed due to "
_DURATION = re.compile(
    r"([+-]?)P(?:([+-]?\d+)D)?(?:T(?:([+-]?\d+)H)?(?:([+-]?\d+)M)?(?:([+-]?\d+(?:\.\d+)?)S)?)?", re.IGNORECASE
)

Offsets = dict["TopicPartition", int]


@dataclass(frozen=True, slots=True)
class Plan:
    """What was asked for: how to find the new offsets, where, and whether to commit them."""

    mode: str
    value: Any
    topics: Sequence[str]
    all_topics: bool
    execute: bool


def run(groups: "Groups", names: Sequence[str], plan: Plan, export: bool, one_group: bool, style: str) -> int:
    from millstream.wire.errors import ErrorCode, KafkaError

    by_file = read_plan(plan.value, list(names), one_group) if plan.mode == "from-file" else None
    moment = moment_of(plan)
    outcome: dict[str, Offsets] = {}
    problems: list[str] = []
    for name, found in groups.describe(names).items():
        if isinstance(found, KafkaError) and found.code is not ErrorCode.group_id_not_found:
            raise CommandFailed(f"{FAILED}{found.message}")
        if not isinstance(found, KafkaError) and found.state not in ("Empty", "Dead"):
            outcome[name] = {}
            problems.append(
                f"Assignments can only be reset if the group '{name}' is inactive, but the current state is "
                f"{found.state}."
            )
            continue
        if by_file is not None and name not in by_file:
            outcome[name] = {}
            problems.append(f"No reset plan for group {name} found")
            continue
        outcome[name] = new_offsets(groups, name, plan, moment, by_file)
        if plan.execute and outcome[name]:
            _commit(groups, name, outcome[name])
    emit(report(outcome, export, one_group), style)
    sys.stdout.flush()
    for problem in problems:
        print(f"Error: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _commit(groups: "Groups", name: str, offsets: Offsets) -> None:
    for (topic, partition), error in groups.commit(name, offsets).items():
        if error is not None:
            raise CommandFailed(
                f"{FAILED}{sentence(error)} (group '{name}', partition {topic}-{partition}; others may have "
                f"been reset)"
            )


def report(outcome: Mapping[str, Offsets], export: bool, one_group: bool) -> Report:
    rows = [
        [name, topic, partition, offset]
        for name, offsets in sorted(outcome.items())
        for (topic, partition), offset in sorted(offsets.items())
    ]
    data = [
        {"group": name, "topic": topic, "partition": partition, "new_offset": offset}
        for name, topic, partition, offset in rows
    ]
    if export:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(row[1:] if one_group else row for row in rows)
        lines = [text.getvalue()]
    else:
        wide = max([15, *(len(name) for name in outcome)])
        topic_wide = max([15, *(len(str(row[1])) for row in rows)])
        head: list[Any] = ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"]
        lines = [""]
        for name, topic, partition, offset in [head, *rows]:
            lines.append(f"{name:<{wide}} {topic:<{topic_wide}} {partition:<10} {offset}")
    return Report(lines, data, ["Group", "Topic", "Partition", "New offset"], rows)


# --- which offsets ------------------------------------------------------------------------------------------


def new_offsets(
    groups: "Groups", name: str, plan: Plan, moment: int, by_file: Mapping[str, Offsets] | None
) -> Offsets:
    from millstream.client.offsets import EARLIEST, LATEST

    if by_file is not None:
        wanted = by_file.get(name, {})
        check_existing(groups, list(wanted))
        return within_log(groups, wanted)
    topic_partitions = _scope(groups, name, plan)
    if plan.mode == "to-earliest":
        return _listed(groups, topic_partitions, EARLIEST)
    if plan.mode == "to-latest":
        return _listed(groups, topic_partitions, LATEST)
    if plan.mode == "to-offset":
        return within_log(groups, dict.fromkeys(topic_partitions, plan.value))
    if plan.mode in ("to-datetime", "by-duration"):
        return _at_time(groups, topic_partitions, moment)
    current = _committed(groups, name)
    if plan.mode == "shift-by":
        for topic, partition in topic_partitions:
            if (topic, partition) not in current:
                raise UsageError(
                    f"Cannot shift offset for partition {topic}-{partition} since there is no current "
                    f"committed offset"
                )
        return within_log(
            groups,
            {topic_partition: current[topic_partition] + plan.value for topic_partition in topic_partitions},
        )
    known = {
        topic_partition: current[topic_partition]
        for topic_partition in topic_partitions
        if topic_partition in current
    }
    fresh = _listed(
        groups,
        [topic_partition for topic_partition in topic_partitions if topic_partition not in current],
        LATEST,
    )
    return {**known, **fresh}


def _scope(groups: "Groups", name: str, plan: Plan) -> "list[TopicPartition]":
    if plan.all_topics:
        topic_partitions = list(_committed(groups, name))
    else:
        topic_partitions, problems = named_partitions(groups, plan.topics)
        for error in problems.values():
            raise CommandFailed(f"{FAILED}{sentence(error)}")
    check_existing(groups, topic_partitions)
    return topic_partitions


def check_existing(groups: "Groups", topic_partitions: "Sequence[TopicPartition]") -> None:
    """An offset of a partition that does not exist would wait for it, unseen."""
    if not topic_partitions:
        return
    cluster = groups.cluster
    cluster.refresh({topic for topic, _ in topic_partitions})
    missing = []
    for topic, partition in topic_partitions:
        known = cluster.topics.get(topic)
        if known is None or partition not in known.partitions:
            missing.append(f"{topic}-{partition}")
        elif known.partitions[partition].leader not in cluster.nodes:
            raise CommandFailed(f"{FAILED}The partition {topic}-{partition} does not have a leader")
    if missing:
        raise CommandFailed(f'{FAILED}The partitions "{",".join(sorted(missing))}" do not exist')


def _committed(groups: "Groups", name: str) -> Offsets:
    from millstream.client.groups import Committed

    return {
        topic_partition: committed.offset
        for topic_partition, committed in groups.committed(name).items()
        if isinstance(committed, Committed)
    }


def _listed(groups: "Groups", topic_partitions: "Sequence[TopicPartition]", moment: int) -> Offsets:
    from millstream.client.offsets import list_offsets

    if not topic_partitions:
        return {}
    return {
        topic_partition: answer.offset
        for topic_partition, answer in list_offsets(
            groups.cluster, dict.fromkeys(topic_partitions, moment)
        ).items()
    }


def _at_time(groups: "Groups", topic_partitions: "Sequence[TopicPartition]", moment: int) -> Offsets:
    from millstream.client.offsets import LATEST

    found = _listed(groups, topic_partitions, moment)
    later = [topic_partition for topic_partition, offset in found.items() if offset < 0]
    for topic, partition in sorted(later):
        print(
            f"\nWarn: Partition {partition} from topic {topic} is empty. Falling back to latest known offset."
        )
    return {**found, **_listed(groups, later, LATEST)}


def within_log(groups: "Groups", wanted: Mapping["TopicPartition", int]) -> Offsets:
    """Offsets before the first or after the last one become that one, with a word about it."""
    from millstream.client.offsets import EARLIEST, LATEST

    first = _listed(groups, list(wanted), EARLIEST)
    last = _listed(groups, list(wanted), LATEST)
    found: Offsets = {}
    for topic_partition, offset in wanted.items():
        at = f"topic partition {topic_partition}"
        found[topic_partition] = min(max(offset, first[topic_partition]), last[topic_partition])
        if offset > last[topic_partition]:
            _warn(f"New offset ({offset}) is higher than latest offset for {at}", last[topic_partition])
        elif offset < first[topic_partition]:
            _warn(f"New offset ({offset}) is lower than earliest offset for {at}", first[topic_partition])
    return found


def _warn(what: str, value: int) -> None:
    print(f"WARN {what}. Value will be set to {value}.", file=sys.stderr)


# --- words into numbers -------------------------------------------------------------------------------------


def moment_of(plan: Plan) -> int:
    """The time that the plan names, in milliseconds; 0 if it names none."""
    if plan.mode == "to-datetime":
        return parse_datetime(plan.value)
    if plan.mode == "by-duration":
        return max(0, round(time.time() * 1000) - parse_duration(plan.value))
    return 0


def parse_datetime(text: str) -> int:
    """Milliseconds of a moment such as 2025-01-31T12:00:00.000; UTC where no zone is given."""
    if "T" not in text:
        raise UsageError("Error parsing timestamp. It does not contain a 'T' according to ISO8601 format")
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"Error parsing timestamp '{text}': write it as YYYY-MM-DDTHH:mm:SS.sss, with Z or +HH:mm for a "
            f"zone"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // _MILLISECOND


_MILLISECOND = datetime(1970, 1, 1, microsecond=1000) - datetime(1970, 1, 1)


def parse_duration(text: str) -> int:
    """Milliseconds of a duration such as P1DT2H30M."""
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()[1:]) or text.upper().endswith("T"):
        raise UsageError(f"'{text}' is not a duration: write it as PnDTnHnMnS, for example PT30M or P1DT12H")
    sign, days, hours, minutes, seconds = found.groups()
    whole = int(days or 0) * 86_400 + int(hours or 0) * 3600 + int(minutes or 0) * 60
    total = whole * 1000 + round(float(seconds or 0) * 1000)
    return -total if sign == "-" else total


def read_plan(path: str, names: Sequence[str], one_group: bool) -> dict[str, Offsets]:
    """The offsets in a file: `topic,partition,offset` for one group, `group,topic,partition,offset` for
    several."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            lines = [line for line in csv.reader(file) if line]
    except OSError as error:
        raise CommandFailed(f"{FAILED}{path}: {(error.strerror or str(error)).lower()}") from None
    short = one_group and bool(lines) and len(lines[0]) == 3
    found: dict[str, Offsets] = {}
    for number, line in enumerate(lines, 1):
        cells = [names[0], *line] if short else line
        try:
            group, topic, partition, offset = (cell.strip() for cell in cells)
            found.setdefault(group, {})[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError:
            form = "topic,partition,offset" if one_group else "group,topic,partition,offset"
            raise CommandFailed(f"{FAILED}{path}: line {number} is not {form}: {','.join(line)}") from None
    return found
