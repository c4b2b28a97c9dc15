"""`millstream service-accounts`: users for programs, each with API keys of its own (`api_keys`)."""

from typing import Annotated

import typer

from millstream.cli import cluster_access, shared_options
from millstream.cli.errors import CommandFailed, UsageError
from millstream.cli.output import Report, check_style, emit
from millstream.wire.errors import KafkaError

COLUMNS = ["Id", "Name", "Description"]


def command(
    action: Annotated[str, typer.Argument(metavar="create|list|delete", show_default=False)] = "",
    name: Annotated[str, typer.Argument(metavar="NAME|ID", show_default=False)] = "",
    description: Annotated[str, typer.Option(help="What it is for.", metavar="TEXT")] = "",
    bootstrap_server: shared_options.Bootstrap = "",
    command_config: shared_options.CommandConfig = "",
    output: shared_options.Output = "lines",
    version: shared_options.Version = False,
) -> int:
    """Create, list and delete service accounts. The principal of an account in ACLs is User:ID."""
    if version:
        return shared_options.show_version()
    style = check_style(output)
    if action not in ("create", "list", "delete"):
        raise UsageError("use create NAME, list, or delete ID")
    if action != "list" and not name:
        raise UsageError(f"{action} needs a {'name' if action == 'create' else 'name or id'}")
    properties = cluster_access.read_client_properties(command_config)
    with cluster_access.connect(bootstrap_server, properties, "millstream-service-accounts") as cluster:
        from millstream.client.security_admin import SecurityAdmin

        admin = SecurityAdmin(cluster)
        try:
            if action == "create":
                made = [admin.create_account(name, description)]
                lines = [
                    f"Created service account {made[0].id} ({name}). Its principal is User:{made[0].id}."
                ]
            else:
                made = sorted(admin.accounts(), key=lambda account: account.name)
                lines = [f"{account.id}\t{account.name}\t{account.description}".rstrip() for account in made]
            if action == "delete":
                made = [account for account in made if name in (account.id, account.name)]
                if not made:
                    raise CommandFailed(f"there is no service account {name}")
                admin.delete_account(made[0].id)
                lines = [f"Deleted service account {made[0].id} ({made[0].name}) and its API keys."]
        except KafkaError as error:
            raise CommandFailed(f"service-accounts {action}: {error.message}") from None
    rows = [list(account) for account in made]
    emit(Report(lines, [account._asdict() for account in made], COLUMNS, rows), style)
    return 0
