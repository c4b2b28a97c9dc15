"""Finding and running a subcommand. Exit codes: 0 done, 1 failed, 2 not understood, 130 interrupted."""

import functools
import importlib
import os
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from millstream import __version__
from millstream.cli.errors import CommandFailed, UsageError, refuse_removed_options


class Tool(NamedTuple):
    module: str
    summary: str


TOOLS = {
    "broker": Tool("", "run a broker"),
    "topics": Tool("topics", "create, list, describe, alter and delete topics"),
    "configs": Tool("configs", "show and change the settings of topics and brokers"),
    "console-producer": Tool("console_producer", "send lines of standard input to a topic"),
    "console-consumer": Tool("console_consumer", "print the records of a topic"),
    "consumer-groups": Tool(
        "consumer_groups", "show consumer groups and their lag, reset and delete their offsets"
    ),
    "transactions": Tool("transactions", "show transactions and their producers, end those that hang"),
    "get-offsets": Tool("get_offsets", "show first, last or other offsets of partitions"),
    "delete-records": Tool("delete_records", "delete the records of partitions before an offset"),
    "dump-log": Tool("dump_log", "print the files of a partition's log"),
}

OVERVIEW = """\
Usage: millstream COMMAND [OPTIONS]

The Kafka platform as one program. The tools take the options of Kafka's tools of the same name.

Commands:
{commands}

Options:
  --version   Show the version.
  -h, --help  Show this text. `millstream COMMAND --help` shows the options of a command.

Example:
  millstream broker
  millstream topics --create --topic orders --partitions 3 --bootstrap-server 127.0.0.1:9092
"""


def main(arguments: list[str]) -> int:
    """Run `millstream <arguments>` and return its exit code."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        width = max(map(len, TOOLS))
        lines = [f"  {name:<{width}}  {tool.summary}" for name, tool in TOOLS.items()]
        print(
            OVERVIEW.format(commands="\n".join(lines)), end="", file=sys.stdout if arguments else sys.stderr
        )
        return 0 if arguments else 2
    if arguments[0] == "--version":
        print(f"millstream {__version__}")
        return 0
    name, rest = arguments[0], arguments[1:]
    if name not in TOOLS:
        return _complain(f"there is no command '{name}'{_suggestion(name)}; see millstream --help", 2)
    if name == "broker":
        from millstream.__main__ import main as run_any

        return run_any(arguments)
    return run_tool(name, rest)


def run_tool(name: str, arguments: list[str]) -> int:
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # bytes that are no text come out as they went in
            stream.reconfigure(errors="surrogateescape")
    try:
        code = _run(name, arguments)
        sys.stdout.flush()
        return code
    except (BrokenPipeError, _ReaderGone):
        # Whoever read our output has seen enough (`| head`). Python would complain once more at exit: give it a sink.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    except UsageError as error:
        return _complain(f"{error} (see millstream {name} --help)", 2)
    except CommandFailed as error:
        return _complain(str(error), 1)
    except Exception as error:
        return _unexpected(name, error)


def _run(name: str, arguments: list[str]) -> int:
    import typer

    module: Any = importlib.import_module(f"millstream.cli.{TOOLS[name].module}")
    refuse_removed_options(arguments, getattr(module, "REMOVED", {}))
    prepare = getattr(module, "prepare", None)
    if prepare is not None:
        arguments = prepare(arguments)
    program = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    settings = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
    program.command(context_settings=settings)(_noticing_broken_pipes(module.command))
    code = program(arguments, prog_name=f"millstream {name}", standalone_mode=False)
    return code if isinstance(code, int) else 0


class _ReaderGone(Exception):
    """A broken pipe, under a name that typer does not handle in its own way."""


def _noticing_broken_pipes(command: Callable[..., int]) -> Callable[..., int]:
    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> int:
        try:
            return command(*arguments, **options)
        except BrokenPipeError:
            raise _ReaderGone from None

    return run


def _unexpected(name: str, error: Exception) -> int:
    from millstream.wire.errors import KafkaError

    if isinstance(error, KafkaError):
        return _complain(error.message or f"the broker answers {error.code.name.upper()}", 1)
    if hasattr(error, "format_message") and hasattr(
        error, "exit_code"
    ):  # how typer says that it cannot parse
        return _complain(f"{error.format_message()} (see millstream {name} --help)", 2)
    if type(error).__name__ == "Abort":
        return 130
    if isinstance(error, OSError):
        return _complain(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}", 1)
    raise error


def _suggestion(name: str) -> str:
    import difflib

    close = difflib.get_close_matches(name.removeprefix("kafka-").removesuffix(".sh"), TOOLS, 1)
    return f" (did you mean '{close[0]}'?)" if close else ""


def _complain(message: str, code: int) -> int:
    print(message, file=sys.stderr)
    return code
