"""`millstream secure init`: from nothing to a secured broker.

In one folder: an authority and certificates for broker and clients, an admin with a random password, the
settings of a broker with one SASL_SSL listener and ACLs, and the properties of a client that logs in as
admin. It is for a laptop and small installations; an organisation with an authority of its own replaces the
PEM files.
"""

import secrets
from pathlib import Path
from typing import Annotated

import typer

from millstream.cli import shared_options
from millstream.cli.errors import CommandFailed, UsageError

DEFAULT_FOLDER = "millstream-secure"


def init(
    folder: Annotated[
        str, typer.Option("--dir", metavar="FOLDER", help="Where the files go; must be new or empty.")
    ] = DEFAULT_FOLDER,
    host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="A name or address under which clients reach the broker; may be repeated."
        ),
    ] = None,
    port: Annotated[int, typer.Option(metavar="PORT", help="The broker's port.")] = 9093,
    admin: Annotated[
        str, typer.Option(metavar="NAME", help="The first user, who may do everything.")
    ] = "admin",
    days: Annotated[int, typer.Option(metavar="DAYS", help="How long the certificates are good for.")] = 825,
    profile: Annotated[
        str, typer.Option(metavar="NAME", help="The profile that logs in as admin; empty for none.")
    ] = "secure",
    version: shared_options.Version = False,
) -> int:
    """Make certificates, an admin and settings, and say how to start.

    The broker then starts with `millstream broker --config FOLDER/server.properties`.
    """
    if version:
        return shared_options.show_version()
    if not 1 <= port <= 65535 or not 1 <= days <= 3650:
        raise UsageError("--port is a number from 1 to 65535, --days one from 1 to 3650")
    made = make_secure(Path(folder).resolve(), [*(host or []), "localhost", "127.0.0.1"], port, admin, days)
    if profile:
        from millstream.cli.profile_store import Profiles

        profiles = Profiles.read()
        profiles.clusters[profile] = made.client
        profiles.write()
    with_profile = f"  millstream -p {profile} topics --list\n" if profile else ""
    print(
        f"Made {made.folder}: the authority (ca.pem, ca.key), certificates, server.properties, and\n"
        f"client.properties with the password of {admin}. Keep ca.key and client.properties to yourself.\n\n"
        f"  millstream broker --config {made.folder}/server.properties\n"
        f"{with_profile}"
        f"  millstream topics --list --command-config {made.folder}/client.properties "
        f"--bootstrap-server localhost:{port}"
    )
    return 0


def certificate(
    name: Annotated[str, typer.Option(metavar="NAME", help="The user that it stands for: its CN.")],
    folder: Annotated[
        str,
        typer.Option(
            "--dir", metavar="FOLDER", help="Where the authority is (ca.pem, ca.key); NAME.pem goes there."
        ),
    ] = DEFAULT_FOLDER,
    days: Annotated[int, typer.Option(metavar="DAYS", help="How long it is good for.")] = 365,
    version: shared_options.Version = False,
) -> int:
    """Make a client certificate for a user, signed by the authority of `secure init` or `up --secure`.

    It is for listeners that ask for one: `ssl.client.auth` of the broker, `ssl.client.authentication` of the
    HTTP services.
    """
    if version:
        return shared_options.show_version()
    if not name or len(name) > 64 or any(one in "/\\\0" or not one.isprintable() for one in name):
        raise UsageError("--name is a user's name of at most 64 characters, without slashes")
    if not 1 <= days <= 3650:
        raise UsageError("--days is a number from 1 to 3650")
    from millstream.cli.certificates import make_client_certificate

    path = make_client_certificate(Path(folder), name, days)
    print(f"Made {path}: key and certificate of CN={name}, good for {days} days.")
    return 0


SUBCOMMANDS = {"init": init, "certificate": certificate}


class SecureFolder:
    """What was made. `client` are the properties of a client that logs in as admin."""

    def __init__(self, folder: Path, server: dict[str, str], client: dict[str, str]) -> None:
        self.folder = folder
        self.server = server
        self.client = client


def make_secure(folder: Path, hosts: list[str], port: int, admin: str, days: int) -> SecureFolder:
    from millstream.cli.certificates import make_certificates
    from millstream.cli.format import add_users
    from millstream.cli.scram_users import parse_add_scram

    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise CommandFailed(f"{folder} is not empty: name another with --dir, or remove it")
        make_certificates(folder, list(dict.fromkeys(hosts)), admin, days)
        password = secrets.token_urlsafe(18)
        server = server_settings(folder, hosts[0], port, admin)
        client = client_settings(folder, f"{hosts[0]}:{port}", admin, password)
        write_properties(folder / "server.properties", server)
        write_properties(folder / "client.properties", client)
        add_users(folder / "data", [parse_add_scram(f"SCRAM-SHA-512=[name={admin},password={password}]")])
    except OSError as error:
        raise CommandFailed(f"cannot write to {folder}: {(error.strerror or str(error)).lower()}") from None
    return SecureFolder(folder, server, client)


def server_settings(folder: Path, host: str, port: int, admin: str) -> dict[str, str]:
    return {
        "log.dirs": f"{folder}/data",
        "listeners": f"SASL_SSL://:{port}",
        "advertised.listeners": f"SASL_SSL://{host}:{port}",
        "inter.broker.listener.name": "SASL_SSL",
        # API keys log in by PLAIN.
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
        "delegation.token.secret.key": secrets.token_urlsafe(32),
        "listener.name.sasl_ssl.ssl.client.auth": "requested",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": f"{folder}/broker.pem",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": f"{folder}/ca.pem",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{admin}",
    }


def client_settings(folder: Path, servers: str, user: str, password: str) -> dict[str, str]:
    return {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": f"{folder}/ca.pem",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{user}" password="{password}";',
    }


def write_properties(path: Path, properties: dict[str, str]) -> None:
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
