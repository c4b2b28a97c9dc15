"""`millstream format`: what Kafka's `kafka-storage.sh format --add-scram` does (KIP-900), also for a folder
that is in use already.

A Millstream broker makes its data folder by itself; what it cannot make is the first user, without whom
nobody can log in to make users. The same command gives a locked-out admin a new password: stop the broker,
run it, start.
"""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from millstream.cli import scram_users, shared_options
from millstream.cli.errors import CommandFailed, UsageError


def command(
    config: Annotated[
        str, typer.Option("-c", "--config", metavar="FILE", help="The broker's server.properties.")
    ] = "",
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting of the broker; may be repeated."),
    ] = None,
    add_scram: Annotated[
        list[str] | None,
        typer.Option(
            "-S",
            "--add-scram",
            metavar="SCRAM-SHA-512=[name=NAME,password=SECRET]",
            help="A user, or his new password; may be repeated.",
        ),
    ] = None,
    cluster_id: Annotated[str, typer.Option("-t", "--cluster-id", hidden=True)] = "",
    standalone: Annotated[bool, typer.Option("-s", "--standalone", hidden=True)] = False,
    ignore_formatted: Annotated[bool, typer.Option("-g", "--ignore-formatted", hidden=True)] = False,
    version: shared_options.Version = False,
) -> int:
    """Add users to the data folder of a broker that does not run.

    Example: millstream format --config server.properties --add-scram
    'SCRAM-SHA-512=[name=admin,password=...]'
    """
    if version:
        return shared_options.show_version()
    users = [scram_users.parse_add_scram(text) for text in add_scram or ()]
    if not users:
        raise UsageError("nothing to do: a broker makes its data folder itself; add users with --add-scram")
    folder = data_folder(config, setting or [])
    add_users(folder, users)
    for user in users:
        print(f"User {user.user} can log in with {user.mechanism} when the broker in {folder} starts.")
    return 0


def data_folder(config: str, settings: list[str]) -> Path:
    from millstream.settings.properties import parse_assignment, read_properties
    from millstream.settings.resolve import BrokerSettings
    from millstream.settings.values import InvalidSetting

    try:
        properties = read_properties(config) if config else {}
        properties.update(parse_assignment(text) for text in settings)
        return Path(BrokerSettings(properties).log_dirs[0])
    except (OSError, ValueError, InvalidSetting) as error:
        raise CommandFailed(str(error)) from None


def add_users(data_dir: Path, users: list[scram_users.NamedPassword]) -> None:
    from millstream.broker.login.credentials import from_salted
    from millstream.broker.server import METADATA_FOLDER
    from millstream.cluster.metadata_records import UnknownMetadata
    from millstream.cluster.offline import submit_offline
    from millstream.cluster.scram import AlterScram
    from millstream.cluster.security_records import Scram
    from millstream.cluster.store import StoreError
    from millstream.wire.errors import KafkaError

    records = []
    for user, mechanism, password in users:
        made = from_salted(mechanism, password.salted, password.salt, password.iterations)
        records.append(
            Scram(
                user,
                password.mechanism,
                made.salt.hex(),
                made.stored_key.hex(),
                made.server_key.hex(),
                made.iterations,
            )
        )
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        replies = asyncio.run(submit_offline(data_dir / METADATA_FOLDER, AlterScram(records)))
    except (StoreError, UnknownMetadata, KafkaError, OSError) as error:
        raise CommandFailed(f"{data_dir}: {error}") from None
    for user, result in replies.items():
        if not result.ok:
            raise CommandFailed(f"user {user}: {result.message}")
