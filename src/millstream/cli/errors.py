"""What a tool can fail with, and the options of Kafka's tools that are gone."""

from collections.abc import Mapping, Sequence

REMOVED_EVERYWHERE = {
    "--zookeeper": "tools talk to brokers now: use --bootstrap-server HOST:PORT",
    "--force": "nothing needs to be forced any more: leave it out",
}


class UsageError(Exception):
    """The command line makes no sense; the message says what to write instead."""


class CommandFailed(Exception):
    """The command did not do what it was asked; the message is the one line that the user sees."""


def refuse_removed_options(arguments: Sequence[str], removed: Mapping[str, str]) -> None:
    """An option that Kafka's tool had once is refused with the one to use now. A tool that still has one
    which the others have lost says so by an empty text."""
    gone = {**REMOVED_EVERYWHERE, **removed}
    for argument in arguments:
        name = argument.partition("=")[0]
        if gone.get(name):
            raise UsageError(f"{name} is gone: {gone[name]}")
