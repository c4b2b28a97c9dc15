"""Completion for bash, zsh and fish: a short script that asks `millstream __complete WORDS...` for what fits.

    source <(millstream completion bash)                     in ~/.bashrc, or the same with zsh in ~/.zshrc
    millstream completion fish > ~/.config/fish/completions/millstream.fish

Commands, options, styles, profiles and services are known without asking anybody. Names of topics and groups
are asked from the cluster that the line (or the profile) names, if it answers in a moment.

Typer's own completion is not used: it wants all commands in one loaded tree, where a module is loaded here
only for the command on the line, and it completes declared parameters only, while Kafka's tools have words
beside them (`topics list`, `-p NAME` in front, services that start without Typer).
"""

import importlib
import os
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer

from millstream.cli import cluster_access, shared_options
from millstream.cli.command_table import COMMANDS
from millstream.cli.errors import UsageError

TIMEOUT_MS = "700"
SERVICE_OPTIONS = ("--config", "--set", "--print-config", "--version", "--help")
SERVICE_COMMANDS = {
    "registry": ("codegen",),
    "console": ("hash-password",),
}

SCRIPTS = {
    "bash": """\
_millstream() {
    local IFS=$'\\n'
    COMPREPLY=($(millstream __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
    [[ ${#COMPREPLY[@]} -eq 0 ]] && COMPREPLY=($(compgen -f -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -F _millstream millstream
""",
    "zsh": """\
#compdef millstream
_millstream() {
    local -a found
    found=("${(@f)$(millstream __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "${found[1]}" ]]; then compadd -a found; else _files; fi
}
compdef _millstream millstream
""",
    "fish": """\
function __millstream_complete
    set -l words (commandline -opc) (commandline -ct)
    millstream __complete $words[2..-1] 2>/dev/null
end
complete -c millstream -a '(__millstream_complete)'
""",
}


def command(
    shell: Annotated[
        str,
        typer.Argument(
            metavar="SHELL", help="bash, zsh or fish. Without it: your shell.", show_default=False
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
    if wanted not in SCRIPTS:
        raise UsageError(
            f"there is completion for {', '.join(SCRIPTS)}; say which: millstream completion bash"
        )
    print(SCRIPTS[wanted], end="")
    return 0


def complete(words: Sequence[str]) -> int:
    """One candidate per line for the last of the words. Never an error: a shell could not show it."""
    *before, last = words or [""]
    try:
        found = candidates(list(before), last)
    except Exception:
        return 0
    for word in sorted({word for word in found if word.startswith(last)}):
        print(word)
    return 0


def candidates(before: list[str], last: str) -> Iterable[str]:
    from millstream.cli import profile_store

    if before and before[0] in ("-p", "--profile"):
        if len(before) == 1:
            return [profile_store.LOCAL, *profile_store.Profiles.read().clusters]
        profile_store.choose(before[1])
        before = before[2:]
    if not before:
        return [*COMMANDS, "--help", "--version", "--profile"]
    name, rest = before[0], before[1:]
    if name not in COMMANDS:
        return []
    if not COMMANDS[name].module:
        return [*SERVICE_COMMANDS.get(name, ()), *SERVICE_OPTIONS]
    module: Any = importlib.import_module(f"millstream.cli.{COMMANDS[name].module}")
    from millstream.cli.app import typer_program

    tool: Any = typer_program(module)
    if hasattr(tool, "commands"):
        if not rest:
            return [*tool.commands, "--help"]
        if rest[0] not in tool.commands:
            return []
        tool, rest = tool.commands[rest[0]], rest[1:]
    options = {word: option for option in tool.params for word in option.opts if word.startswith("-")}
    option = options.get(rest[-1]) if rest else None
    if option is not None and not option.is_flag:
        return values(rest[-1], option.metavar or "", rest)
    found = [word for word, option in options.items() if not option.hidden and word.startswith("--")]
    found.append("--help")
    if not last.startswith("-"):
        found += arguments(name, module)
    return found


def arguments(name: str, module: Any) -> Iterable[str]:
    if name == "logs":
        return service_names()
    if name == "completion":
        return SCRIPTS
    return getattr(module, "ACTIONS", ())


def values(option: str, metavar: str, line: Sequence[str]) -> Iterable[str]:
    """What may follow an option."""
    if metavar == "STYLE":
        from millstream.cli.output import STYLES

        return STYLES
    if option in ("--topic", "--group"):
        return names_in_cluster(option, line)
    if option in ("--only", "--with"):
        return service_names()
    if option == "--isolation-level":
        return ("read_committed", "read_uncommitted")
    if option == "--entity-type":
        from millstream.cli.configs import ENTITY_TYPES

        return ENTITY_TYPES
    return ()


def service_names() -> list[str]:
    from millstream.up.services import SERVICES

    return list(SERVICES)


def names_in_cluster(option: str, line: Sequence[str]) -> Iterable[str]:
    """Names of topics or groups, from the cluster itself."""

    def after(*names: str) -> str:
        return next((line[at + 1] for at, word in enumerate(line[:-1]) if word in names), "")

    timeouts = dict.fromkeys(
        ("socket.connection.setup.timeout.ms", "request.timeout.ms", "default.api.timeout.ms"), TIMEOUT_MS
    )
    properties = {**cluster_access.read_properties(after("--command-config")), **timeouts}
    with cluster_access.connect(
        after("--bootstrap-server", "--broker-list"), properties, "completion"
    ) as cluster:
        if option == "--topic":
            cluster.refresh()
            return list(cluster.topics)
        from millstream.client.groups import Groups

        return [group.group_id for group in Groups(cluster).listed()]
