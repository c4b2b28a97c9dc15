"""`millstream broker-api-versions`: what kafka-broker-api-versions.sh does."""

from typing import Any

from millstream.cli import cluster_access, shared_options
from millstream.cli.output import Report, check_style, emit


def command(
    bootstrap_server: shared_options.Bootstrap = "",
    command_config: shared_options.CommandConfig = "",
    output: shared_options.Output = "lines",
    version: shared_options.Version = False,
) -> int:
    """Show which APIs brokers serve, in which versions, and which of them this client would use."""
    if version:
        return shared_options.show_version()
    style = check_style(output)
    properties = cluster_access.read_client_properties(command_config)
    lines: list[str] = []
    data: list[dict[str, Any]] = []
    rows: list[list[Any]] = []
    failed = False
    with cluster_access.connect(bootstrap_server, properties, "millstream-broker-api-versions") as cluster:
        from millstream.client.cluster_admin import ClusterAdmin, usable_version
        from millstream.client.messages import API_KEYS
        from millstream.wire.errors import KafkaError

        admin = ClusterAdmin(cluster)
        names = {key: "".join(word.title() for word in name.split("_")) for name, key in API_KEYS.items()}
        for node in admin.brokers():
            who = f"{node.host}:{node.port} (id: {node.id} rack: {node.rack or 'null'} isFenced: false)"
            try:
                offered = admin.api_versions(node.id)
            except KafkaError as error:
                failed = True
                lines.append(f"{who} -> ERROR: {error.message}")
                data.append({"id": node.id, "host": node.host, "port": node.port, "error": error.message})
                rows.append([node.id, None, None, None, None, error.message])
                continue
            apis = []
            texts = []
            for key in sorted(offered.keys() | names.keys()):
                name = names.get(key, "UNKNOWN")
                if key not in offered:
                    if key in _CLIENT_APIS:
                        texts.append(f"\t{name}({key}): UNSUPPORTED")
                    continue
                low, high = offered[key]
                usable = usable_version(key, offered[key])
                span = f"{low} to {high}" if low != high else str(low)
                remark = f" [usable: {usable}]" if usable is not None else " [unusable: node too new]"
                texts.append(f"\t{name}({key}): {span}{remark if key in names else ''}")
                apis.append({"key": key, "name": name, "min": low, "max": high, "usable": usable})
                rows.append([node.id, key, name, low, high, usable])
            lines += [f"{who} -> (", *(f"{text}," for text in texts[:-1]), *texts[-1:], ")"]
            data.append({"id": node.id, "host": node.host, "port": node.port, "apis": apis})
    emit(Report(lines, data, ["Broker", "Key", "API", "Lowest", "Highest", "Usable"], rows), style)
    return 1 if failed else 0


# Kafka's tool lists what brokers may offer to clients; requests between controllers are none of it.
_CLIENT_APIS = frozenset(
    {*range(4), *range(8, 52), 55, 57, 60, 61, 64, 65, 66, 68, 69, 71, 72, 74, *range(75, 82), *range(83, 93)}
)
