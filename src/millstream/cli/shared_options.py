"""Options that all commands share, and the rules between options."""

import sys
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Annotated

import typer

from millstream.cli.errors import UsageError

LARGEST_INT16 = (1 << 15) - 1
LARGEST_INT32 = (1 << 31) - 1
LARGEST_INT64 = (1 << 63) - 1

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "--broker-list",
        metavar="HOST:PORT,...",
        help="Brokers to connect to first. Required, unless a profile says it (millstream -p NAME).",
        show_default=False,
    ),
]
# For the tools whose --broker-list names brokers by their ids.
BootstrapServer = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        metavar="HOST:PORT,...",
        help="Brokers to connect to first. Required, unless a profile says it (millstream -p NAME).",
        show_default=False,
    ),
]
CommandConfig = Annotated[
    str,
    typer.Option(
        "--command-config",
        metavar="FILE",
        help="Properties file with settings of the client.",
        show_default=False,
    ),
]
Output = Annotated[
    str,
    typer.Option(
        "-o",
        "--output",
        metavar="STYLE",
        help="lines (as Kafka's tool prints them), json, yaml or table.",
    ),
]
Version = Annotated[bool, typer.Option("--version", help="Show the version.", show_default=False)]


def show_version() -> int:
    from millstream import __version__

    print(__version__)
    return 0


def chosen_action(actions: Mapping[str, bool], order: str) -> str:
    """The one action of a tool that was asked for."""
    chosen = [name for name, given in actions.items() if given]
    if len(chosen) != 1:
        raise UsageError(f"Command must include exactly one action: {order}")
    return chosen[0]


def refuse_other_options(action: str, given: Mapping[str, object], allowed: Sequence[str]) -> None:
    """Options that mean nothing to this action are a mistake, not noise."""
    for option, value in given.items():
        if value not in (None, False, "", [], ()) and option not in allowed:
            raise UsageError(f'Option "[{option}]" can\'t be used with option "[{action}]"')


def in_range(low: int, high: int) -> Callable[[int | None], int | None]:
    """A check for an option. (The limits that typer has for this would be all over the help.)"""

    def check(value: int | None) -> int | None:
        if value is not None and not low <= value <= high:
            raise typer.BadParameter(f"{value} is not a number from {low} to {high}")
        return value

    return check


PartitionOfTopic = Annotated[
    int | None,
    typer.Option(help="The partition of --topic.", metavar="N", callback=in_range(0, LARGEST_INT32)),
]


def warn_of_old_names(*options: tuple[str, object, str, object]) -> None:
    """(old name, its value, new name, its value): an old name is worth a warning, both names at once are a
    mistake."""
    for old, old_value, new, new_value in options:
        if old_value and new_value:
            raise UsageError(f"Options {new} and {old} cannot be specified together: {old} is the old name")
        if old_value:
            print(f"Option {old} is deprecated. Use {new} instead.", file=sys.stderr)


def action_options(arguments: list[str], actions: Sequence[str], object_option: str = "") -> list[str]:
    """`list` for `--list`, and `describe orders` for `--describe --topic orders`: a shorthand."""
    if not arguments or arguments[0] not in actions:
        return arguments
    rest = arguments[1:]
    if object_option and rest and not rest[0].startswith("-"):
        rest = [object_option, *rest]
    return [f"--{arguments[0]}", *rest]


def subcommand_first(arguments: list[str], subcommands: Container[str]) -> list[str]:
    """`--bootstrap-server B describe` for `describe --bootstrap-server B`: some of Kafka's tools take the
    options of all their subcommands in front."""
    at = 0
    while at < len(arguments) and arguments[at] not in subcommands:
        # An option in front has a value, but for the help.
        at += 2 if arguments[at].startswith("--") and "=" not in arguments[at] else 1
    if not 0 < at < len(arguments):
        return arguments
    return [arguments[at], *arguments[:at], *arguments[at + 1 :]]
