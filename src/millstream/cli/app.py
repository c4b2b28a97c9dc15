"""Finding and running a subcommand. Exit codes: 0 done, 1 failed, 2 not understood, 130 interrupted."""

import functools
import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

from millstream import __version__
from millstream.cli.command_table import COMMAND_GROUPS, COMMANDS, KAFKA_COMMANDS, NOT_YET
from millstream.cli.errors import CommandFailed, UsageError, refuse_removed_options

OVERVIEW = """\
Usage: millstream [-p PROFILE] COMMAND [OPTIONS]

The Kafka platform as one program. The tools take the options of Kafka's tools of the same name.
{commands}
Options:
  -p, --profile NAME  Work with this cluster (millstream profile --help); `-p up` is that of `millstream up`.
  --version           Show the version.
  -h, --help          Show this text. `millstream COMMAND --help` shows the options of a command.

Example:
  millstream up
  millstream -p up topics --create --topic orders --partitions 3
  millstream topics --list --bootstrap-server 127.0.0.1:9092

Not there yet: {not_yet}.
"""


def overview() -> str:
    width = max(map(len, COMMANDS))
    parts = []
    for group in COMMAND_GROUPS:
        lines = [f"  {name:<{width}}  {tool.summary}" for name, tool in group.tools.items()]
        parts.append(f"\n{group.title}:\n" + "\n".join(lines) + "\n")
    return OVERVIEW.format(commands="".join(parts), not_yet=", ".join(NOT_YET))


def main(arguments: list[str]) -> int:
    """Run `millstream <arguments>` and return its exit code."""
    if "_MILLSTREAM_COMPLETE" in os.environ:  # a shell asks: see cli/completion.py
        from millstream.cli.completion import complete

        return complete(os.environ["_MILLSTREAM_COMPLETE"])
    try:
        arguments = take_profile(arguments)
    except UsageError as error:
        return _complain(str(error), 2)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        if len(arguments) > 1 and arguments[1] in COMMANDS:  # millstream help topics
            return main([arguments[1], "--help"])
        print(overview(), end="", file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 2
    if arguments[0] == "--version":
        print(f"millstream {__version__}")
        return 0
    name, rest = arguments[0], arguments[1:]
    plain = _plain(name)
    if plain in NOT_YET and name not in COMMANDS:
        return _complain(f"'{plain}' is not there yet: {NOT_YET[plain]}", 2)
    if name not in COMMANDS:
        from millstream.settings.suggestions import did_you_mean

        hint = did_you_mean(plain, COMMANDS)
        return _complain(f"there is no command '{name}'{hint} (see millstream --help)", 2)
    worker = name == "connect" and rest[:1] in (["distributed"], ["standalone"])
    if not COMMANDS[name].module or worker:
        from millstream.__main__ import main as run_any
        from millstream.cli.profile_store import service_arguments

        try:
            return run_any([name, *service_arguments(name, rest)])
        except (UsageError, CommandFailed) as error:
            return _complain(str(error), 2 if isinstance(error, UsageError) else 1)
    return run_tool(name, rest)


def take_profile(arguments: list[str]) -> list[str]:
    """`-p prod` in front of the command: remembered for `cli.cluster_access.connect`."""
    from millstream.cli import profile_store

    profile_store.choose("")
    first = arguments[0] if arguments else ""
    if first in ("-p", "--profile"):
        if len(arguments) < 2:
            raise UsageError(f"{first} needs the name of a profile; see millstream profile list")
        profile_store.choose(arguments[1])
        return arguments[2:]
    if first.startswith("--profile="):
        profile_store.choose(first.partition("=")[2])
        return arguments[1:]
    return arguments


def run_tool(name: str, arguments: list[str]) -> int:
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # bytes that are no text come out as they went in
            stream.reconfigure(errors="surrogateescape")
    try:
        code = _run(name, arguments)
        sys.stdout.flush()
        return code
    except (BrokenPipeError, _ReaderGone):
        # Whoever read our output has seen enough (`| head`). Python would complain once more at exit: give it
        # a sink.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    except UsageError as error:
        between = "\n" if "\n" in str(error) else " "
        return _complain(f"{error}{between}(see millstream {_described(name, arguments)} --help)", 2)
    except CommandFailed as error:
        return _complain(str(error), 1)
    except Exception as error:
        return _unexpected(_described(name, arguments), error)


def _described(name: str, arguments: list[str]) -> str:
    """The words whose --help tells the options: of a group of commands, the one of the group."""
    module = sys.modules.get(f"millstream.cli.{COMMANDS[name].module}")
    return (
        f"{name} {arguments[0]}"
        if arguments[:1] and arguments[0] in getattr(module, "SUBCOMMANDS", ())
        else name
    )


def _run(name: str, arguments: list[str]) -> int:
    module: Any = importlib.import_module(f"millstream.cli.{COMMANDS[name].module}")
    separate = getattr(module, "SEPARATE_COMMANDS", {}).get(arguments[0]) if arguments else None
    if separate is not None:
        module = importlib.import_module(f"millstream.cli.{separate}")
    refuse_removed_options(arguments, getattr(module, "REMOVED", {}))
    asked = "--version" in arguments and (name in KAFKA_COMMANDS or arguments == ["--version"])
    if asked and hasattr(module, "SUBCOMMANDS"):
        from millstream.cli.shared_options import show_version

        return show_version()
    prepare = getattr(module, "prepare", None)
    if prepare is not None:
        arguments = prepare(arguments)
    program = typer_program(module)
    if name in KAFKA_COMMANDS:
        refuse_repeated_options(program, arguments)
    code = program(arguments, prog_name=f"millstream {name}", standalone_mode=False)
    return code if isinstance(code, int) else 0


def refuse_repeated_options(program: Any, arguments: list[str]) -> None:
    """`--topic a --topic b` where one topic can be named: Kafka's tools refuse it, typer would take the last
    one."""
    commands = getattr(program, "commands", None)
    if commands is not None:
        program = commands.get(arguments[0]) if arguments else None
    with_value = {
        word: option
        for option in getattr(program, "params", ())
        if option.param_type_name == "option" and not option.is_flag
        for word in option.opts
    }
    seen = set()
    words = iter(arguments)
    for argument in words:
        word, equals, _ = argument.partition("=")
        option = with_value.get(word)
        if option is None:
            continue
        if not equals:
            next(words, None)
        if option.name in seen and not option.multiple:
            raise UsageError(f"{word} was given more than once, and takes one value")
        seen.add(option.name)


def typer_program(module: Any) -> Any:
    """A module's `command`, or its `SUBCOMMANDS` under their names, as typer runs them."""
    import typer

    program = typer.Typer(
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        help=getattr(module, "HELP", None) or module.__doc__,
    )
    settings = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
    commands: dict[str, Callable[..., int]] = getattr(module, "SUBCOMMANDS", {})
    for word, command in commands.items():
        program.command(word, context_settings=settings)(_noticing_broken_pipes(command))
    if commands:
        program.callback(context_settings=settings)(_describing(module))
    else:
        program.command(context_settings=settings)(_noticing_broken_pipes(module.command))
    made = typer.main.get_command(program)
    for command in (made, *getattr(made, "commands", {}).values()):
        for parameter in command.params:
            if parameter.param_type_name == "argument" and hasattr(parameter, "display_type"):
                # "SERVICE <list[str]>" would be for those who read the source.
                parameter.display_type = lambda ctx: ""
    return made


def _describing(module: Any) -> Callable[[], None]:
    """Makes a group of commands out of a program, also when there is only one."""

    def group() -> None:
        pass

    group.__doc__ = getattr(module, "HELP", None) or module.__doc__
    return group


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
    # How typer says that it cannot parse.
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):
        return _complain(f"{error.format_message()} (see millstream {name} --help)", 2)
    if type(error).__name__ == "Abort":
        return 130
    if isinstance(error, OSError):
        return _complain(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}", 1)
    raise error


def _plain(name: str) -> str:
    """`acls` for `kafka-acls.sh`."""
    return name.removeprefix("kafka-").removesuffix(".sh")


def _complain(message: str, code: int) -> int:
    """One line; what it quotes may be an address with a login."""
    from millstream.settings.redaction import hide_url_passwords

    print(hide_url_passwords(message), file=sys.stderr)
    return code
