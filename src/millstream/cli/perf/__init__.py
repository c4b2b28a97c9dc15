"""Measure a cluster: how fast it takes records, gives them back, and how long one needs from end to end.

Options and lines are those of kafka-producer-perf-test, kafka-consumer-perf-test and kafka-e2e-latency. It
works against any Kafka. The load is made by Millstream's own client, which works with whole batches: what it
measures is the broker.
"""

import sys
from collections.abc import Callable

from millstream.cli.errors import UsageError
from millstream.cli.perf.consume import command as consume
from millstream.cli.perf.latency import command as end_to_end
from millstream.cli.perf.produce import command as produce

MANY_VALUES = ("--producer-props", "--command-property")
POSITIONS = (
    "--bootstrap-server",
    "--topic",
    "--num-records",
    "--producer-acks",
    "--record-size",
    "--command-config",
)

SUBCOMMANDS: dict[str, Callable[..., int]] = {
    "produce": produce,
    "consume": consume,
    "end-to-end": end_to_end,
}


def prepare(arguments: list[str]) -> list[str]:
    """`--producer-props acks=1 linger.ms=5`, as Kafka's tool takes them, becomes one option for each. And
    `end-to-end` may still be given its arguments the old way, by position."""
    by_position = arguments[1:]
    if (
        arguments[:1] == ["end-to-end"]
        and by_position
        and not any(word.startswith("-") for word in by_position)
    ):
        if len(by_position) not in (5, 6):
            raise UsageError(
                f"Invalid number of arguments. Expected 5 or 6 positional arguments, but got "
                f"{len(by_position)}"
            )
        print(
            "Positional arguments are deprecated. Use --bootstrap-server and so on instead.", file=sys.stderr
        )
        return ["end-to-end", *(word for pair in zip(POSITIONS, by_position, strict=False) for word in pair)]
    found: list[str] = []
    option = ""
    for at, word in enumerate(arguments):
        if word.startswith("-"):
            option = word if word in MANY_VALUES else ""
            if not option:
                found.append(word)
            elif at + 1 == len(arguments) or arguments[at + 1].startswith("-"):
                raise UsageError(f"{word} needs settings: NAME=VALUE, one or more")
        elif option:
            found += [option, word]
        else:
            found.append(word)
    return found
