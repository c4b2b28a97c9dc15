"""`millstream cluster`: what kafka-cluster.sh does."""

from typing import Annotated

import typer

from millstream.cli import cluster_access, shared_options
from millstream.cli.errors import CommandFailed, UsageError
from millstream.cli.output import Report, check_style, emit

REMOVED = {
    "--bootstrap-controller": "every broker passes the request on to the controller: use --bootstrap-server",
    "--config": "use --command-config FILE",
}
HELP = "Show the cluster: its id and its brokers; take a broker that is gone for good out of it."

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT,...",
        help="Brokers to connect to first. Required, unless a profile says it (millstream -p NAME).",
        show_default=False,
    ),
]
CommandConfig = Annotated[
    str,
    typer.Option(
        "--command-config",
        "-c",
        metavar="FILE",
        help="Properties file with settings of the client.",
        show_default=False,
    ),
]
CLIENT = "millstream-cluster"


def cluster_id(
    bootstrap_server: Bootstrap = "",
    command_config: CommandConfig = "",
    output: shared_options.Output = "lines",
) -> int:
    """Show the id of the cluster."""
    style = check_style(output)
    properties = cluster_access.read_client_properties(command_config)
    with cluster_access.connect(bootstrap_server, properties, CLIENT) as cluster:
        cluster.refresh([])
        found = cluster.cluster_id
    line = f"Cluster ID: {found}" if found else "No cluster ID found. The Kafka version is probably too old."
    emit(Report([line], {"cluster_id": found}, ["Cluster id"], [[found]]), style)
    return 0


def unregister(
    broker_id: Annotated[
        int | None,
        typer.Option(
            "--id",
            "-i",
            help="The broker, by id. Required.",
            metavar="ID",
            callback=shared_options.in_range(0, shared_options.LARGEST_INT32),
        ),
    ] = None,
    bootstrap_server: Bootstrap = "",
    command_config: CommandConfig = "",
    output: shared_options.Output = "lines",
) -> int:
    """Forget a broker that will not come back. One that runs is left out until it is started again."""
    style = check_style(output)
    if broker_id is None:
        raise UsageError("argument --id/-i is required")
    properties = cluster_access.read_client_properties(command_config)
    with cluster_access.connect(bootstrap_server, properties, CLIENT) as cluster:
        from millstream.client.cluster_admin import ClusterAdmin
        from millstream.wire.errors import ErrorCode, KafkaError

        try:
            ClusterAdmin(cluster).unregister_broker(broker_id)
        except KafkaError as error:
            if error.code is ErrorCode.unsupported_version:
                raise CommandFailed(
                    "The target cluster does not support the broker unregistration API."
                ) from None
            raise
    line = f"Broker {broker_id} is no longer registered."
    emit(Report([line], {"unregistered": broker_id}, ["Unregistered"], [[broker_id]]), style)
    return 0


def list_endpoints(
    include_fenced_brokers: Annotated[
        bool, typer.Option("--include-fenced-brokers", help="Also brokers that are registered but down.")
    ] = False,
    bootstrap_server: Bootstrap = "",
    command_config: CommandConfig = "",
    output: shared_options.Output = "lines",
) -> int:
    """List the brokers with their addresses."""
    style = check_style(output)
    properties = cluster_access.read_client_properties(command_config)
    with cluster_access.connect(bootstrap_server, properties, CLIENT) as cluster:
        from millstream.client.cluster_admin import ClusterAdmin

        found = ClusterAdmin(cluster).endpoints(include_fenced_brokers)
    host_width = max((len(endpoint.host) for endpoint in found), default=0)
    rack_width = max((len(endpoint.rack) for endpoint in found if endpoint.rack), default=10)
    layout = f"{{:<10}} {{:<{host_width}}} {{:<10}} {{:<{rack_width}}} {{:<10}} {{:<15}}"
    rows = [
        [
            endpoint.id,
            endpoint.host,
            endpoint.port,
            endpoint.rack,
            "fenced" if endpoint.fenced else "unfenced",
            "broker",
        ]
        for endpoint in found
    ]
    lines = [layout.format("ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE")]
    lines += [layout.format(*("null" if cell is None else cell for cell in row)) for row in rows]
    data = [{"id": row[0], "host": row[1], "port": row[2], "rack": row[3], "state": row[4]} for row in rows]
    emit(Report(lines, data, ["Id", "Host", "Port", "Rack", "State", "Type"], rows), style)
    return 0


SUBCOMMANDS = {"cluster-id": cluster_id, "unregister": unregister, "list-endpoints": list_endpoints}
