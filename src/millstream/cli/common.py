"""What all tools share: options, connecting to the cluster, and words for what is gone or missing."""

import base64
import re
import signal
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli.errors import CommandFailed, UsageError

if TYPE_CHECKING:
    from millstream.client import Cluster

LARGEST_INT16 = (1 << 15) - 1
LARGEST_INT32 = (1 << 31) - 1
LARGEST_INT64 = (1 << 63) - 1

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


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


def read_properties(path: str) -> dict[str, str]:
    """A properties file, or nothing if no path is given."""
    if not path:
        return {}
    from millstream.settings.properties import read_properties as read

    try:
        return read(path)
    except OSError as error:
        raise CommandFailed(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from None
    except ValueError as error:
        raise CommandFailed(f"{path}: {error}") from None


def key_values(items: Sequence[str]) -> dict[str, str]:
    """`name=value` arguments. A value may contain more of `=`; a missing one is empty."""
    return {name: value for name, _, value in (item.partition("=") for item in items)}


@contextmanager
def connect(servers: str, properties: Mapping[str, str], client_id: str) -> "Iterator[Cluster]":
    """A cluster to work with, closed at the end: the one that the command names, or that of the profile."""
    from millstream.cli.profiles import with_profile
    from millstream.client import ClientConfig, Cluster

    properties = with_profile(servers, properties)
    if not servers and "bootstrap.servers" not in properties:
        raise UsageError(
            "--bootstrap-server must be specified, for example --bootstrap-server 127.0.0.1:9092, or a "
            "profile: "
            "`millstream -p up ...` is the cluster of `millstream up`"
        )
    try:
        config = ClientConfig.of(servers, properties, client_id)
    except ValueError as error:
        raise UsageError(str(error)) from None
    with Cluster(config) as cluster:
        yield cluster


class Stopped(Exception):
    """Ctrl-C or SIGTERM."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by signal {number}")
        self.code = 128 + number


class Interrupts:
    """Ctrl-C and SIGTERM as `Stopped`, but only where it is welcome, so that what is under way comes to its
    end. A second signal does not wait."""

    def __init__(self) -> None:
        self._welcome = False
        self._came = 0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Interrupts":
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._notice)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _notice(self, number: int, frame: FrameType | None) -> None:
        if self._welcome or self._came:
            raise Stopped(number)
        self._came = number

    @contextmanager
    def welcome(self) -> Iterator[None]:
        self._welcome = True  # before the look back: a signal between the two must not get lost
        try:
            if self._came:
                raise Stopped(self._came)
            yield
        finally:
            self._welcome = False


def one_of(actions: Mapping[str, bool], order: str) -> str:
    """The one action of a tool that was asked for."""
    chosen = [name for name, given in actions.items() if given]
    if len(chosen) != 1:
        raise UsageError(f"Command must include exactly one action: {order}")
    return chosen[0]


def only_with(action: str, given: Mapping[str, object], allowed: Sequence[str]) -> None:
    """Options that mean nothing to this action are a mistake, not noise."""
    for option, value in given.items():
        if value not in (None, False, "", [], ()) and option not in allowed:
            raise UsageError(f'Option "[{option}]" can\'t be used with option "[{action}]"')


def between(least: int, most: int) -> Callable[[int | None], int | None]:
    """A check for an option. (The limits that typer has for this would be all over the help.)"""

    def check(value: int | None) -> int | None:
        if value is not None and not least <= value <= most:
            raise typer.BadParameter(f"{value} is not a number from {least} to {most}")
        return value

    return check


def instead_of_old(*options: tuple[str, object, str, object]) -> None:
    """(old name, its value, new name, its value): an old name is worth a warning, both names at once are a
    mistake."""
    for old, old_value, new, new_value in options:
        if old_value and new_value:
            raise UsageError(f"Options {new} and {old} cannot be specified together: {old} is the old name")
        if old_value:
            print(f"Option {old} is deprecated. Use {new} instead.", file=sys.stderr)


def action_words(arguments: list[str], actions: Sequence[str], object_option: str = "") -> list[str]:
    """`list` for `--list`, and `describe orders` for `--describe --topic orders`: the short way to say it."""
    if not arguments or arguments[0] not in actions:
        return arguments
    rest = arguments[1:]
    if object_option and rest and not rest[0].startswith("-"):
        rest = [object_option, *rest]
    return [f"--{arguments[0]}", *rest]


def topic_matcher(pattern: str) -> re.Pattern[str]:
    """Topics by regular expression, as Kafka's tools read one: it has to match the whole name, and a comma
    means or."""
    try:
        return re.compile(pattern.strip().replace(",", "|").replace(" ", "").strip("\"'"))
    except re.error as error:
        raise UsageError(f"'{pattern}' is not a valid regular expression: {error}") from None


def kafka_id(value: uuid.UUID) -> str:
    """A topic id as Kafka prints it: base64 for addresses, without padding."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
