"""`millstream client-metrics`: what kafka-client-metrics.sh does, subscriptions to the metrics of clients."""

import base64
import uuid
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli import cluster_access, shared_options
from millstream.cli.errors import CommandFailed, UsageError
from millstream.cli.output import Report, check_style, emit
from millstream.wire.errors import KafkaError

if TYPE_CHECKING:
    from millstream.client.admin import Admin

CLIENT_METRICS = 16
ACTIONS = "--alter, --delete, --describe or --list."


def prepare(arguments: list[str]) -> list[str]:
    return shared_options.action_options(arguments, ("alter", "delete", "describe", "list"), "--name")


def command(
    alter: Annotated[bool, typer.Option("--alter", help="Create or change a subscription.")] = False,
    delete: Annotated[bool, typer.Option("--delete", help="Delete a subscription.")] = False,
    describe: Annotated[bool, typer.Option("--describe", help="Show one subscription, or all.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="List the names of subscriptions.")] = False,
    name: Annotated[str, typer.Option(help="Name of the subscription.", metavar="NAME")] = "",
    generate_name: Annotated[
        bool, typer.Option("--generate-name", help="Make up a name, with --alter.")
    ] = False,
    interval: Annotated[
        str | None,
        typer.Option(help="How often clients push, in ms. Empty: back to the default.", metavar="MS"),
    ] = None,
    match: Annotated[
        str | None,
        typer.Option(
            help="Which clients: selectors k1=v1,k2=v2 with regular expressions, of client_id, "
            "client_instance_id, client_software_name, client_software_version, client_source_address, "
            "client_source_port. Empty: all.",
            metavar="K=V,...",
        ),
    ] = None,
    metrics: Annotated[
        str | None, typer.Option(help="Prefixes of the names of metrics, * for all.", metavar="M1,M2")
    ] = None,
    bootstrap_server: shared_options.Bootstrap = "",
    command_config: shared_options.CommandConfig = "",
    output: shared_options.Output = "lines",
    version: shared_options.Version = False,
) -> int:
    """Choose which clients push which metrics to the brokers (KIP-714), where /metrics shows them."""
    if version:
        return shared_options.show_version()
    style = check_style(output)
    action = shared_options.chosen_action(
        {"alter": alter, "delete": delete, "describe": describe, "list": list_}, ACTIONS
    )
    changes = {"interval.ms": interval, "match": match, "metrics": metrics}
    given: dict[str, object] = {
        "name": name,
        "generate-name": generate_name,
        **{
            option: value is not None
            for option, value in zip(("interval", "match", "metrics"), changes.values(), strict=True)
        },
    }
    allowed = {"alter": tuple(given), "delete": ("name",), "describe": ("name",), "list": ()}[action]
    shared_options.refuse_other_options(action, given, allowed)
    if action == "alter" and bool(name) == generate_name:
        raise UsageError("One of --name or --generate-name must be specified with --alter.")
    if action == "delete" and not name:
        raise UsageError("A client metrics resource name must be specified with --delete.")
    properties = cluster_access.read_client_properties(command_config)
    with cluster_access.connect(bootstrap_server, properties, "millstream-client-metrics") as cluster:
        from millstream.client.admin import Admin

        admin = Admin(cluster)
        try:
            if action == "alter":
                report = change(admin, name or new_name(), changes)
            elif action == "delete":
                report = remove(admin, name)
            elif action == "describe":
                report = show(admin, name)
            else:
                names = admin.config_resources(CLIENT_METRICS)
                report = Report(["\n".join(names)], names, ["Name"], [[each] for each in names])
        except KafkaError as error:
            raise CommandFailed(f"Error while executing client metrics command : {error.message}") from None
    emit(report, style)
    return 0


def new_name() -> str:
    """A random id, as Kafka writes those."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()


def change(admin: "Admin", name: str, changes: dict[str, str | None]) -> Report:
    """An empty value takes a setting back."""
    from millstream.client.admin import DELETE, SET

    operations: list[tuple[str, int, str | None]] = [
        (setting, SET if value else DELETE, value or None)
        for setting, value in changes.items()
        if value is not None
    ]
    alter(admin, name, operations)
    return Report([f"Altered client metrics config for {name}."], {"altered": name}, ["Altered"], [[name]])


def remove(admin: "Admin", name: str) -> Report:
    from millstream.client.admin import DELETE

    alter(admin, name, [(setting, DELETE, None) for setting, _ in settings_of(admin, name)])
    return Report([f"Deleted client metrics config for {name}."], {"deleted": name}, ["Deleted"], [[name]])


def alter(admin: "Admin", name: str, operations: list[tuple[str, int, str | None]]) -> None:
    problem = admin.alter_configs({(CLIENT_METRICS, name): operations})[CLIENT_METRICS, name]
    if problem is not None:
        raise problem


def settings_of(admin: "Admin", name: str) -> list[tuple[str, str]]:
    found = admin.describe_configs([(CLIENT_METRICS, name)])[CLIENT_METRICS, name]
    if isinstance(found, KafkaError):
        raise found
    return sorted((entry.name, entry.value or "") for entry in found)


def show(admin: "Admin", name: str) -> Report:
    known = admin.config_resources(CLIENT_METRICS)
    if name and name not in known:
        line = f"The client metric resource {name} doesn't exist and doesn't have dynamic config."
        return Report([line], [], ["Name", "Setting", "Value"], [])
    lines: list[str] = []
    data: list[dict[str, Any]] = []
    rows: list[list[str]] = []
    for each in [name] if name else known:
        settings = settings_of(admin, each)
        lines.append(f"Client metrics configs for {each} are:")
        lines += [f"  {setting}={value}" for setting, value in settings]
        data.append({"name": each, "configs": dict(settings)})
        rows += [[each, setting, value] for setting, value in settings]
    return Report(lines, data, ["Name", "Setting", "Value"], rows)
