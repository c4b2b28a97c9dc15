"""`millstream features`: what kafka-features.sh does."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from millstream.cli import cluster_access, shared_options
from millstream.cli.errors import CommandFailed, UsageError
from millstream.cli.output import Report, check_style, emit

REMOVED = {
    "--bootstrap-controller": "every broker passes the request on to the controller: use --bootstrap-server",
    "--metadata": "name the level: --feature metadata.version=29",
    "--release-version": "name the levels: --feature metadata.version=29 --feature transaction.version=2",
    "version-mapping": "each release of Kafka has a table of its own; name the levels with --feature",
    "feature-dependencies": "the controller refuses a level whose dependencies are missing: try --dry-run",
}
HELP = "Show and change the levels of features, which all brokers of a cluster agree on."
CLIENT = "millstream-features"

# Kafka's names for the levels of metadata.version, which its tools show in place of the numbers.
METADATA_VERSION = "metadata.version"
_RELEASES = (
    "3.3-IV3 3.4-IV0 3.5-IV0 3.5-IV1 3.5-IV2 3.6-IV0 3.6-IV1 3.6-IV2 3.7-IV0 3.7-IV1 3.7-IV2 3.7-IV3 "
    "3.7-IV4 3.8-IV0 3.9-IV0 4.0-IV0 4.0-IV1 4.0-IV2 4.0-IV3 4.1-IV0 4.1-IV1 4.2-IV0 4.2-IV1 4.3-IV0"
)
METADATA_RELEASES = dict(enumerate(_RELEASES.split(), start=7))

Levels = Annotated[
    list[str] | None,
    typer.Option("--feature", help="A feature with its level; may be repeated.", metavar="NAME=LEVEL"),
]
Unsafe = Annotated[
    bool, typer.Option("--unsafe", help="Even if metadata that the old level does not know is lost.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say whether it could be done.")]


def prepare(arguments: list[str]) -> list[str]:
    return shared_options.subcommand_first(arguments, SUBCOMMANDS)


def describe(
    node_id: Annotated[
        int | None, typer.Option(help="Ask this broker. Without it: any.", metavar="ID")
    ] = None,
    bootstrap_server: shared_options.Bootstrap = "",
    command_config: shared_options.CommandConfig = "",
    output: shared_options.Output = "lines",
) -> int:
    """Show what brokers support and which levels are in force."""
    style = check_style(output)
    properties = cluster_access.read_client_properties(command_config)
    with cluster_access.connect(bootstrap_server, properties, CLIENT) as cluster:
        from millstream.client.cluster_admin import ClusterAdmin

        found = ClusterAdmin(cluster).features(node_id)
    epoch = str(found.epoch) if found.epoch >= 0 else "-"
    lines: list[str] = []
    data: list[dict[str, Any]] = []
    rows: list[list[Any]] = []
    for name, feature in sorted(found.features.items()):
        low, high, level = (level_name(name, number) for number in feature)
        lines.append(
            f"Feature: {name:<40}  SupportedMinVersion: {low:<15}  SupportedMaxVersion: {high:<15}  "
            f"FinalizedVersionLevel: {level:<15}  Epoch: {epoch}"
        )
        data.append(
            {
                "feature": name,
                "supported_min_version": feature.lowest,
                "supported_max_version": feature.highest,
                "finalized_version_level": feature.finalized,
                "epoch": found.epoch,
            }
        )
        rows.append([name, low, high, level])
    emit(Report(lines, data, ["Feature", "Lowest", "Highest", "In force"], rows), style)
    return 0


def level_name(feature: str, level: int) -> str:
    if feature != METADATA_VERSION:
        return str(level)
    return METADATA_RELEASES.get(level, f"UNKNOWN {level}")


def upgrade(
    feature: Levels = None,
    dry_run: DryRun = False,
    bootstrap_server: shared_options.Bootstrap = "",
    command_config: shared_options.CommandConfig = "",
    output: shared_options.Output = "lines",
) -> int:
    """Raise the levels of features, when every broker supports them."""
    from millstream.client.cluster_admin import UPGRADE

    levels = parse_levels(feature or [])
    return _update("upgrade", levels, UPGRADE, dry_run, bootstrap_server, command_config, output)


def downgrade(
    feature: Levels = None,
    unsafe: Unsafe = False,
    dry_run: DryRun = False,
    bootstrap_server: shared_options.Bootstrap = "",
    command_config: shared_options.CommandConfig = "",
    output: shared_options.Output = "lines",
) -> int:
    """Lower the levels of features."""
    levels = parse_levels(feature or [])
    return _update("downgrade", levels, _how(unsafe), dry_run, bootstrap_server, command_config, output)


def disable(
    feature: Annotated[
        list[str] | None,
        typer.Option("--feature", help="A feature; may be repeated.", metavar="NAME"),
    ] = None,
    unsafe: Unsafe = False,
    dry_run: DryRun = False,
    bootstrap_server: shared_options.Bootstrap = "",
    command_config: shared_options.CommandConfig = "",
    output: shared_options.Output = "lines",
) -> int:
    """Take features out of force: the same as a downgrade to 0."""
    names = feature or []
    if again := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"Feature {again[0]} was specified more than once.")
    levels = dict.fromkeys(names, 0)
    return _update("disable", levels, _how(unsafe), dry_run, bootstrap_server, command_config, output)


def _how(unsafe: bool) -> int:
    from millstream.client.cluster_admin import SAFE_DOWNGRADE, UNSAFE_DOWNGRADE

    return UNSAFE_DOWNGRADE if unsafe else SAFE_DOWNGRADE


def parse_levels(items: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for item in items:
        name, equals, level = item.partition("=")
        if not equals:
            raise UsageError(f"Can't parse feature=level string {item}: equals sign not found.")
        name, level = name.strip(), level.strip()
        try:
            number = int(level)
        except ValueError:
            number = -shared_options.LARGEST_INT32
        if not -shared_options.LARGEST_INT16 <= number <= shared_options.LARGEST_INT16:
            raise UsageError(f"Can't parse feature=level string {item}: unable to parse {level} as a short.")
        if name in found:
            raise UsageError(f"Feature {name} was specified more than once.")
        found[name] = number
    return found


def _update(
    action: str,
    levels: Mapping[str, int],
    how: int,
    dry_run: bool,
    bootstrap_server: str,
    command_config: str,
    output: str,
) -> int:
    style = check_style(output)
    if not levels:
        raise UsageError(f"You must specify at least one feature to {action}")
    properties = cluster_access.read_client_properties(command_config)
    with cluster_access.connect(bootstrap_server, properties, CLIENT) as cluster:
        from millstream.client.cluster_admin import ClusterAdmin, describe_problem

        outcome = ClusterAdmin(cluster).update_features(levels, how, dry_run)
        problems = {name: describe_problem(error) for name, error in outcome.items() if error is not None}
    lines: list[str] = []
    data: list[dict[str, Any]] = []
    rows: list[list[Any]] = []
    for name, level in sorted(levels.items()):
        if name in problems:
            target = "" if action == "disable" else f" to {level}"
            lines.append(f"{'Can not' if dry_run else 'Could not'} {action} {name}{target}. {problems[name]}")
        else:
            done = "disabled." if action == "disable" else f"{action}d to {level}."
            lines.append(f"{name} {'can be' if dry_run else 'was'} {done}")
        data.append({"feature": name, "level": level, "error": problems.get(name)})
        rows.append([name, level, problems.get(name)])
    emit(Report(lines, data, ["Feature", "Level", "Error"], rows), style)
    if problems:
        raise CommandFailed(f"{len(problems)} out of {len(levels)} operation(s) failed.")
    return 0


SUBCOMMANDS = {"describe": describe, "upgrade": upgrade, "downgrade": downgrade, "disable": disable}
