"""Named clusters: addresses and client settings under a name.

`millstream -p NAME COMMAND` works with a cluster by its name; `millstream profile use NAME` makes it the one
for all commands that name none. The name `up` always stands for the cluster that `millstream up` runs here.
"""

from collections.abc import Callable
from typing import Annotated

import typer

from millstream.cli import cluster_access, shared_options
from millstream.cli.errors import CommandFailed, UsageError
from millstream.cli.output import Report, check_style, emit
from millstream.cli.profile_store import CHOSEN, LOCAL, REGISTRY, SERVERS, Profiles, Properties
from millstream.settings.redaction import shown_value

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the cluster.", show_default=False)]
Style = Annotated[str, typer.Option("-o", "--output", metavar="STYLE", help="table, json or yaml.")]


def add(
    name: Name,
    bootstrap_server: shared_options.Bootstrap = "",
    registry: Annotated[
        str, typer.Option("--registry", metavar="URL", help="Its Schema Registry.", show_default=False)
    ] = "",
    command_config: shared_options.CommandConfig = "",
    command_property: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", help="A setting of clients, as request.timeout.ms=5000; may be repeated."
        ),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace the one of this name.")] = False,
    use: Annotated[bool, typer.Option("--use", help="And use it from now on.")] = False,
) -> int:
    """Add a cluster."""
    from millstream.client import ClientConfig

    check_name(name)
    properties = {
        **cluster_access.read_client_properties(command_config),
        **cluster_access.client_properties(command_property or []),
    }
    if bootstrap_server:
        properties[SERVERS] = bootstrap_server
    if registry:
        properties[REGISTRY] = registry
    if not properties.get(SERVERS):
        raise UsageError("--bootstrap-server must be specified, for example --bootstrap-server broker1:9092")
    try:
        ClientConfig.of("", {**properties, "security.protocol": "PLAINTEXT"})
    except ValueError as error:
        raise UsageError(str(error)) from None
    profiles = Profiles.read()
    if name in profiles.clusters and not replace:
        raise CommandFailed(f"there is a profile '{name}' already: --replace replaces it")
    profiles.clusters[name] = properties
    if use:
        profiles.current = name
    profiles.write()
    print(
        f"Added profile {name} ({shown_value(SERVERS, properties[SERVERS])}){', in use now' if use else ''}."
    )
    return 0


def check_name(name: str) -> None:
    if name == LOCAL:
        raise UsageError(f"the name '{LOCAL}' is taken: it is the cluster of `millstream up`")
    if not name or name.startswith("-") or not all(char.isalnum() or char in "-_." for char in name):
        raise UsageError(f"'{name}' cannot be a name: use letters, digits, '-', '_' and '.'")


def list_profiles(output: Style = "table") -> int:
    """List the clusters; a star marks the one in use."""
    style = check_style(output)
    profiles = Profiles.read()
    rows = [
        [
            "*" if name == profiles.current else "",
            name,
            _shown(settings, SERVERS) or "",
            _shown(settings, REGISTRY) or "",
        ]
        for name, settings in sorted(profiles.clusters.items())
    ]
    data = [
        {
            "name": name,
            "current": name == profiles.current,
            "bootstrap_servers": _shown(settings, SERVERS),
            "schema_registry_url": _shown(settings, REGISTRY),
        }
        for name, settings in sorted(profiles.clusters.items())
    ]
    if not rows and style not in ("json", "yaml"):
        print(
            "There are no profiles yet; add one: millstream profile add prod --bootstrap-server broker1:9092"
        )
        return 0
    emit(Report((), data, ["", "Name", "Brokers", "Registry"], rows), "table" if style == "lines" else style)
    return 0


def show(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Without it: the one in use.", show_default=False)
    ] = "",
    secrets: Annotated[bool, typer.Option("--secrets", help="Show passwords, too.")] = False,
    output: Style = "table",
) -> int:
    """Show the settings of a cluster, passwords hidden."""
    style = check_style(output)
    profiles = Profiles.read()
    if not name and not profiles.current:
        raise CommandFailed("no profile is in use: millstream profile use NAME")
    settings = {
        key: value if secrets else shown_value(key, value)
        for key, value in sorted(profiles.get(name or profiles.current).items())
    }
    rows = [[key, value] for key, value in settings.items()]
    emit(Report((), settings, ["Setting", "Value"], rows), "table" if style == "lines" else style)
    return 0


def _shown(settings: Properties, name: str) -> str | None:
    return shown_value(name, settings[name]) if name in settings else None


def use(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name.", show_default=False)] = "",
    none: Annotated[bool, typer.Option("--none", help="Use no profile any more.")] = False,
) -> int:
    """Work with a cluster from now on, in all commands that name none."""
    if bool(name) == none:
        raise UsageError("name a profile, or say --none")
    profiles = Profiles.read()
    if name and name != LOCAL:
        profiles.get(name)
    profiles.current = name
    profiles.write()
    print(f"Profile {name} is in use now." if name else "No profile is in use any more.")
    return 0


def remove(name: Name) -> int:
    """Remove a cluster from the list."""
    profiles = Profiles.read()
    if name not in profiles.clusters:
        profiles.get(name)
    if name == LOCAL:
        raise UsageError(f"'{LOCAL}' cannot be removed: it is the cluster of `millstream up`")
    del profiles.clusters[name]
    if profiles.current == name:
        profiles.current = ""
    profiles.write()
    print(f"Removed profile {name}.")
    return 0


SUBCOMMANDS: dict[str, Callable[..., int]] = {
    "add": add,
    "list": list_profiles,
    "show": show,
    "use": use,
    "remove": remove,
}
HELP = f"{__doc__}\n\nThe variable {CHOSEN} of the environment does the same as -p."
