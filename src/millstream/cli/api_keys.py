"""`millstream api-keys`: keys with which programs log in as a service account, by SASL/PLAIN."""

import time
from typing import Annotated, Any

import typer

from millstream.cli import cluster_access, shared_options
from millstream.cli.errors import CommandFailed, UsageError
from millstream.cli.output import Report, check_style, emit
from millstream.wire.errors import KafkaError

COLUMNS = ["Key", "Account", "Created", "Expires", "Description"]


def command(
    action: Annotated[str, typer.Argument(metavar="create|list|delete", show_default=False)] = "",
    key: Annotated[str, typer.Argument(metavar="KEY", show_default=False)] = "",
    account: Annotated[
        str, typer.Option(help="Whose key: the name or id of a service account.", metavar="ACCOUNT")
    ] = "",
    description: Annotated[str, typer.Option(help="What it is for.", metavar="TEXT")] = "",
    lifetime: Annotated[
        int | None,
        typer.Option(
            help="Days until the key expires (never).",
            metavar="DAYS",
            callback=shared_options.in_range(1, 36500),
        ),
    ] = None,
    bootstrap_server: shared_options.Bootstrap = "",
    command_config: shared_options.CommandConfig = "",
    output: shared_options.Output = "lines",
    version: shared_options.Version = False,
) -> int:
    """Create, list and delete API keys. The secret is shown once: the cluster keeps its hash."""
    if version:
        return shared_options.show_version()
    style = check_style(output)
    if action not in ("create", "list", "delete"):
        raise UsageError("use create --account ACCOUNT, list [--account ACCOUNT], or delete KEY")
    if action == "create" and not account:
        raise UsageError("create needs --account: the name or id of a service account")
    if action == "delete" and not key:
        raise UsageError("delete needs the id of a key")
    properties = cluster_access.read_client_properties(command_config)
    with cluster_access.connect(bootstrap_server, properties, "millstream-api-keys") as cluster:
        from millstream.client.security_admin import SecurityAdmin

        admin = SecurityAdmin(cluster)
        try:
            owner = account
            if account:
                found = [each for each in admin.accounts() if account in (each.id, each.name)]
                if not found:
                    raise CommandFailed(f"there is no service account {account}")
                owner = found[0].id
            if action == "create":
                days = None if lifetime is None else lifetime * 86_400
                made, secret = admin.create_key(owner, description, days)
                lines = [f"API key: {made.id}", f"Secret:  {secret}", "The secret is not shown again."]
                facts: Any = {**made._asdict(), "secret": secret}
                report = Report(lines, facts, ["Key", "Secret"], [[made.id, secret]])
            elif action == "delete":
                admin.delete_key(key)
                report = Report([f"Deleted API key {key}."], {"deleted": key}, ["Deleted"], [[key]])
            else:
                keys = [each for each in admin.api_keys() if not owner or each.account == owner]
                rows = [
                    [each.id, each.account, day(each.created_ms), day(each.expires_ms), each.description]
                    for each in sorted(keys, key=lambda each: (each.account, each.created_ms))
                ]
                report = Report(
                    ["\t".join(row).rstrip() for row in rows],
                    [each._asdict() for each in keys],
                    COLUMNS,
                    rows,
                )
        except KafkaError as error:
            raise CommandFailed(f"api-keys {action}: {error.message}") from None
    emit(report, style)
    return 0


def day(ms: int) -> str:
    return "never" if ms < 0 else time.strftime("%Y-%m-%d", time.gmtime(ms / 1000))
