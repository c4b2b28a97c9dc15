"""Completion for bash, zsh, fish and PowerShell: Typer's, over all commands.

    source <(millstream completion bash)                     in ~/.bashrc, or the same with zsh in ~/.zshrc
    millstream completion fish > ~/.config/fish/completions/millstream.fish

Typer has the scripts, speaks with the shells and finds out what a line asks for. It wants one tree of
commands, so there is one here in which a command's module is loaded when the line names it. Commands,
options, styles, profiles and services are known without asking anybody; names of topics and groups are asked
from the cluster that the line (or the profile) names, if it answers in a moment.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable, Iterable
from typing import Annotated, Any, NamedTuple

import typer
from typer.completion import completion_init, get_completion_script, shell_complete  # type: ignore[attr-defined]
from typer.core import TyperCommand, TyperGroup

from millstream.cli import cluster_access, profile_store, shared_options
from millstream.cli.command_table import COMMANDS
from millstream.cli.errors import UsageError
from millstream.cli.output import STYLES

VARIABLE = "_MILLSTREAM_COMPLETE"
"""Set by the script of a shell, when it asks for what fits."""
SHELLS = ("bash", "zsh", "fish", "powershell")
TIMEOUT_MS = "700"
SERVICE_COMMANDS = {
    "registry": ("codegen",),
    "console": ("hash-password",),
}


def command(
    shell: Annotated[
        str,
        typer.Argument(
            metavar="SHELL", help=f"One of {', '.join(SHELLS)}. Without it: your shell.", show_default=False
        ),
    ] = "",
    version: shared_options.Version = False,
) -> int:
    """Print the completion script of a shell.

    bash: put `source <(millstream completion bash)` into ~/.bashrc. zsh: the same with zsh, in ~/.zshrc,
    after compinit. fish: millstream completion fish > ~/.config/fish/completions/millstream.fish
    """
    if version:
        return shared_options.show_version()
    wanted = shell or os.path.basename(os.environ.get("SHELL", ""))
    if wanted not in SHELLS:
        raise UsageError(
            f"there is completion for {', '.join(SHELLS)}; say which: millstream completion bash"
        )
    print(get_completion_script(prog_name="millstream", complete_var=VARIABLE, shell=wanted))
    return 0


def complete(instruction: str) -> int:
    """What fits, for the shell whose script asks. Never an error: a shell could not show it."""
    completion_init()
    try:
        return shell_complete(program(), {}, "millstream", VARIABLE, instruction)
    except Exception:
        return 0


class Candidate(NamedTuple):
    """What Typer prints for a shell."""

    value: str
    help: str | None = None
    type: str = "plain"


class Program(TyperGroup):
    """All commands, most of them as no more than a name and a line of help."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        tool = COMMANDS.get(cmd_name)
        return None if tool is None else TyperCommand(cmd_name, help=tool.summary)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, *rest = args
        return name, load(name) if name in COMMANDS else TyperCommand(name), rest


def program() -> Any:
    """What stands in front of a command, and the commands."""
    app = typer.Typer(cls=Program, add_completion=False)

    @app.callback()
    def options(
        profile: Annotated[str, typer.Option("-p", "--profile", autocompletion=profiles)] = "",
        version: shared_options.Version = False,
    ) -> None:
        pass

    return typer.main.get_command(app)


def profiles() -> list[str]:
    return [profile_store.LOCAL, *profile_store.Profiles.read().clusters]


def load(name: str) -> Any:
    """A command with its options, and with what may follow these."""
    if not COMMANDS[name].module:
        return _service(name)
    from millstream.cli.app import typer_program

    module: Any = importlib.import_module(f"millstream.cli.{COMMANDS[name].module}")
    tool = typer_program(module)
    for each in (tool, *getattr(tool, "commands", {}).values()):
        for parameter in each.params:
            values = _values_of(name, parameter)
            if values is not None:
                parameter.shell_complete = functools.partial(_fitting, values)
    if hasattr(module, "ACTIONS"):
        _add_words(tool, module.ACTIONS)
    return tool


def _service(name: str) -> Any:
    app = typer.Typer(add_completion=False)

    @app.command()
    def service(
        config: str = "",
        set: str = "",  # named as the option is
        print_config: Annotated[bool, typer.Option("--print-config")] = False,
        version: shared_options.Version = False,
    ) -> None:
        pass

    made = typer.main.get_command(app)
    _add_words(made, SERVICE_COMMANDS.get(name, ()))
    return made


def _add_words(tool: Any, words: Iterable[str]) -> None:
    """What may stand after a command without being an argument that Typer knows: `topics list`."""
    options = tool.shell_complete

    def both(ctx: Any, incomplete: str) -> list[Any]:
        return [*_fitting(lambda _: words, ctx, incomplete), *options(ctx, incomplete)]

    tool.shell_complete = both


Values = Callable[[Any], Iterable[str]]


def _fitting(values: Values, ctx: Any, incomplete: str) -> list[Candidate]:
    return [Candidate(value) for value in sorted(values(ctx)) if value.startswith(incomplete)]


def _values_of(name: str, parameter: Any) -> Values | None:
    """What may follow an option, or stand for an argument; None leaves it to Typer."""
    if parameter.metavar == "STYLE":
        # Those that its help names: not every command has them all.
        return lambda _: [style for style in (*STYLES, "tabular") if style in parameter.help]
    if "--topic" in parameter.opts:
        return functools.partial(names_in_cluster, "topics")
    if "--group" in parameter.opts:
        return functools.partial(names_in_cluster, "groups")
    if parameter.metavar in ("SERVICE", "SERVICE,..."):
        return lambda _: service_names()
    if "--isolation-level" in parameter.opts:
        return lambda _: ("read_committed", "read_uncommitted")
    if "--entity-type" in parameter.opts:
        from millstream.cli.configs import ENTITY_TYPES

        return lambda _: ENTITY_TYPES
    if name == "completion" and parameter.name == "shell":
        return lambda _: SHELLS
    return None


def service_names() -> list[str]:
    from millstream.up.services import SERVICES

    return list(SERVICES)


def names_in_cluster(kind: str, ctx: Any) -> Iterable[str]:
    """Names of topics or groups, from the cluster itself."""

    def given(option: str) -> str:
        names = [one.name for one in ctx.command.params if option in one.opts]
        return str(ctx.params.get(names[0]) or "") if names else ""

    profile_store.choose(ctx.find_root().params.get("profile") or "")
    timeouts = dict.fromkeys(
        ("socket.connection.setup.timeout.ms", "request.timeout.ms", "default.api.timeout.ms"), TIMEOUT_MS
    )
    properties = {**cluster_access.read_properties(given("--command-config")), **timeouts}
    with cluster_access.connect(given("--bootstrap-server"), properties, "completion") as cluster:
        if kind == "topics":
            cluster.refresh()
            return list(cluster.topics)
        from millstream.client.groups import Groups

        return [group.group_id for group in Groups(cluster).listed()]
