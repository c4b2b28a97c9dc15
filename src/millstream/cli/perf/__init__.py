"""Measure a cluster: how fast it takes records, gives them back, and how long one needs from end to end.

Options and lines are those of kafka-producer-perf-test, kafka-consumer-perf-test and kafka-e2e-latency. It works against
any Kafka. The load is made by Millstream's own client, which works with whole batches: what it measures is the broker.
"""

from collections.abc import Callable

from millstream.cli.perf.consume import command as consume
from millstream.cli.perf.latency import command as end_to_end
from millstream.cli.perf.produce import command as produce

MANY_VALUES = ("--producer-props", "--command-property")

SUBCOMMANDS: dict[str, Callable[..., int]] = {
    "produce": produce,
    "consume": consume,
    "end-to-end": end_to_end,
}


def prepare(arguments: list[str]) -> list[str]:
    """`--producer-props acks=1 linger.ms=5`, as Kafka's tool takes them, becomes one option for each."""
    found: list[str] = []
    option = ""
    for word in arguments:
        if word.startswith("-"):
            option = word if word in MANY_VALUES else ""
            if not option:
                found.append(word)
        elif option:
            found += [option, word]
        else:
            found.append(word)
    return found
