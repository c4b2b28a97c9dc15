"""`millstream up --secure`: brokers speak SASL_SSL only, and every service is a user of its own.

At the first start, certificates, users with random passwords and their ACLs are made in the data folder,
before the broker runs; later starts find them in `secure/`. Passwords are in files that only this user can
read, never on a command line. What each service may do is in ACLS. The services ask who comes: users of the
cluster and API keys (`http/cluster_login.py`). They answer HTTPS with the broker's certificate, and trust the
authority that signed it when they ask each other; `--plain-http` leaves that to a proxy in front of them.

Several brokers share the certificate, which names the host that all of them run on, and log in to each other
as the user `broker`. Users and ACLs are made in the folder of the first one, which brings them into
ZooKeeper. ZooKeeper listens on 127.0.0.1 alone, and its nodes belong to a user of ZooKeeper that only the
brokers know.
"""

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.cli.errors import CommandFailed
from millstream.wire.acls import CLUSTER_NAME, AclBinding, Operation, PatternType, Permission, ResourceType

if TYPE_CHECKING:
    from millstream.up.services import Service
    from millstream.up.several_brokers import Size

ADMIN = "admin"
BROKERS = "broker"  # the user as which brokers log in to each other
CHROOT = "/millstream"  # a node of ours, so that nobody else can delete what is below it
FOLDER = "secure"
SECURED = "SASL_SSL"

_T, _G, _X, _C = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID, ResourceType.CLUSTER
_O = Operation
_ALL = "*"

# Service: (resource type, name, prefixed, operations).
ACLS: Mapping[str, Sequence[tuple[ResourceType, str, bool, Sequence[Operation]]]] = {
    "registry": (
        (_T, "_schema", True, (_O.CREATE, _O.READ, _O.WRITE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS)),
        (_T, "_dek_registry", True, (_O.CREATE, _O.READ, _O.WRITE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS)),
        (_X, "schema-registry", True, (_O.WRITE,)),
        (_G, "schema-registry", True, (_O.READ,)),
        (_C, CLUSTER_NAME, False, (_O.DESCRIBE,)),
    ),
    # The proxy reaches the cluster as its callers.
    "rest": ((_C, CLUSTER_NAME, False, (_O.DESCRIBE,)),),
    "console": (
        (_T, _ALL, False, (_O.ALL,)),
        (_G, _ALL, False, (_O.ALL,)),
        (_X, _ALL, False, (_O.DESCRIBE,)),
        (_C, CLUSTER_NAME, False, (_O.DESCRIBE, _O.CREATE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS)),
    ),
    "connect": (
        (_T, _ALL, False, (_O.ALL,)),
        (_G, _ALL, False, (_O.ALL,)),
        (_X, _ALL, False, (_O.ALL,)),
        (_C, CLUSTER_NAME, False, (_O.DESCRIBE, _O.CREATE, _O.IDEMPOTENT_WRITE)),
    ),
    "sql": (
        (_T, _ALL, False, (_O.ALL,)),
        (_G, _ALL, False, (_O.ALL,)),
        (_X, _ALL, False, (_O.ALL,)),
        (_C, CLUSTER_NAME, False, (_O.DESCRIBE, _O.CREATE, _O.IDEMPOTENT_WRITE)),
    ),
}
# Before the names of a client's properties, in the settings of a service.
PREFIXES = {
    "registry": "kafkastore.",
    "rest": "client.",
    "console": "client.",
    "connect": "",
    "sql": "client.",
}
# What users of the cluster need to come in. On our brokers PLAIN knows all of them, and API keys. Metrics
# and health are for programs that watch.
LOGIN: Mapping[str, str] = {"authentication.method": "BASIC", "authentication.sasl.mechanisms": "PLAIN"}
ASKS: Mapping[str, str] = {**LOGIN, "authentication.skip.paths": "/metrics,/health"}


# Where services look for the authority of those that they ask.
TRUST: Mapping[str, Sequence[str]] = {
    "rest": ("schema.registry.ssl.truststore.location",),
    "console": ("schema.registry.ssl.truststore.location", "metrics.ssl.truststore.location"),
    "sql": ("ksql.schema.registry.ssl.truststore.location", "ksql.connect.ssl.truststore.location"),
}


def admin_properties(data_dir: Path) -> dict[str, str]:
    """What the profile `up` needs to log in."""
    from millstream.cli.cluster_access import read_properties

    found = read_properties(str(data_dir / FOLDER / f"{ADMIN}.properties"))
    return {
        **found,
        "schema.registry.basic.auth.user.info": _user_info(found),
        "schema.registry.ssl.truststore.location": str(data_dir / FOLDER / "ca.pem"),
    }


def with_https(services: "Mapping[str, Service]", data_dir: Path) -> "dict[str, Service]":
    """The table of services, of which those that speak HTTP do so over TLS."""
    folder = str(data_dir / FOLDER).replace("{", "{{").replace("}", "}}")
    return {name: _with_https(service, folder) for name, service in services.items()}


def _with_https(service: "Service", folder: str) -> "Service":
    if service.scheme != "http":
        return service
    # Connect's Kafka clients have the names without a prefix.
    prefix = "listeners.https." if PREFIXES[service.name] == "" else ""
    settings = {
        **service.settings,
        "listeners": "https://{host}:{port}",
        f"{prefix}ssl.keystore.type": "PEM",
        f"{prefix}ssl.keystore.location": f"{folder}/broker.pem",
        f"{prefix}ssl.truststore.location": f"{folder}/ca.pem",
        **{name: f"{folder}/ca.pem" for name in TRUST.get(service.name, ())},
    }
    if service.name == "sql":
        settings["ksql.connect.url"] = "{connect}"
    return replace(service, settings=settings, scheme="https")


def secured(chosen: "Sequence[Service]", data_dir: Path, hosts: Sequence[str]) -> "list[Service]":
    """The services with settings for a secured platform, which is made where it is not there yet."""
    from millstream.up.services import BROKER
    from millstream.up.several_brokers import is_broker, is_zookeeper

    folder = data_dir / FOLDER
    if not (folder / f"{ADMIN}.properties").exists():
        _make(folder, data_dir / "broker", hosts)
    several = any(is_zookeeper(service.name) for service in chosen)
    found = []
    for service in chosen:
        if is_broker(service.name):
            settings = {
                **service.settings,
                "listeners": f"{SECURED}://{{host}}:{{port}}",
                "advertised.listeners": f"{SECURED}://{{advertised}}:{{port}}",
                "inter.broker.listener.name": SECURED,
                # API keys log in by PLAIN.
                "sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
                # A service that shows a certificate does not pay for wrong passwords of its callers.
                f"listener.name.{SECURED.lower()}.ssl.client.auth": "requested",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(folder / "broker.pem"),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(folder / "ca.pem"),
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": f"User:{ADMIN}",
            }
            path = _broker_secrets(folder)
            if several:
                settings |= {
                    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
                    "super.users": f"User:{ADMIN};User:{BROKERS}",
                    "zookeeper.connect": service.settings["zookeeper.connect"] + CHROOT,
                    "zookeeper.set.acl": "true",
                }
                _cluster_secrets(path, data_dir / BROKER.name)
            found.append(
                replace(
                    service,
                    settings=settings,
                    extra=(*service.extra, "--config", str(path)),
                    what=f"{service.what}, {SECURED}",
                )
            )
        elif is_zookeeper(service.name):
            found.append(replace(service, local=True))
        else:
            path = folder / f"{service.name}.properties"
            if not path.exists():
                raise CommandFailed(f"{path} is missing: remove {folder} and the broker's data to begin anew")
            _complete(service.name, path, folder)
            found.append(replace(service, extra=(*service.extra, "--config", str(path))))
    return found


def secured_size(size: "Size", data_dir: Path | None, secure: bool) -> "Size":
    """Several brokers: at the first start the users are in the folder of the first one, which therefore has
    to begin. Raises CommandFailed for a folder that is used in the other way."""
    known = data_dir is not None and (data_dir / FOLDER / f"{ADMIN}.properties").exists()
    if known and not secure:
        raise CommandFailed(f"the brokers in {data_dir} are secured: millstream up --secure")
    return replace(size, adopts=True) if secure and not known else size


def _broker_secrets(folder: Path) -> Path:
    """Settings of brokers that are secret: the key of delegation tokens."""
    from millstream.cli.secure import write_properties

    path = folder / "broker.properties"
    if not path.exists():
        write_properties(path, {"delegation.token.secret.key": secrets.token_urlsafe(32)})
    return path


def _cluster_secrets(path: Path, first_broker: Path) -> None:
    """What brokers need for each other and for ZooKeeper. The user goes first: a password that is in the file
    is known to the cluster."""
    from millstream.cli.cluster_access import read_properties
    from millstream.cli.format import add_users
    from millstream.cli.scram_users import parse_add_scram
    from millstream.cli.secure import write_properties

    known = read_properties(str(path))
    if "millstream.zookeeper.digest" in known:
        return
    password = secrets.token_urlsafe(18)
    add_users(first_broker, [parse_add_scram(f"SCRAM-SHA-512=[name={BROKERS},password={password}]")])
    jaas = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    login = f"listener.name.{SECURED.lower()}.scram-sha-512.sasl.jaas.config"
    whole = path.with_suffix(".new")
    write_properties(
        whole,
        {
            **known,
            login: f'{jaas} username="{BROKERS}" password="{password}";',
            "millstream.zookeeper.digest": f"{BROKERS}:{secrets.token_urlsafe(18)}",
        },
    )
    whole.replace(path)


def _complete(service: str, path: Path, folder: Path) -> None:
    """Add what the settings of a service lack, also those that an earlier release made: who may come in, the
    service's certificate, and its login at the registry."""
    from millstream.cli.cluster_access import read_properties
    from millstream.cli.secure import write_properties

    known = read_properties(str(path))
    prefix = PREFIXES[service]
    wanted = {prefix + name.removeprefix(prefix): value for name, value in known.items() if _of_client(name)}
    login = _user_info({name.removeprefix(prefix): value for name, value in known.items()})
    wanted |= {
        f"{prefix}ssl.keystore.type": "PEM",
        f"{prefix}ssl.keystore.location": str(folder / "client.pem"),
    }
    wanted |= LOGIN if service == "console" else ASKS
    if service == "rest":
        wanted["schema.registry.basic.auth.credentials.source"] = "SASL_INHERIT"
    elif service in ("console", "connect"):
        wanted["schema.registry.basic.auth.user.info"] = login
    elif service == "sql":
        wanted["ksql.schema.registry.basic.auth.user.info"] = login
    missing = {name: value for name, value in wanted.items() if name not in known}
    if missing:
        # In one step: the only copy of the password is in this file.
        whole = path.with_suffix(".new")
        write_properties(whole, {**known, **missing})
        whole.replace(path)


def _of_client(name: str) -> bool:
    return name.startswith(("security.protocol", "sasl.", "ssl."))


def _user_info(client: Mapping[str, str]) -> str:
    """`user:password` of a client's login."""
    from millstream.client.security import read_security

    sasl = read_security(client)[2]
    return f"{sasl.username}:{sasl.password}" if sasl is not None else ""


def _make(folder: Path, broker_data: Path, hosts: Sequence[str]) -> None:
    from millstream.cli.certificates import make_certificates
    from millstream.cli.format import add_users
    from millstream.cli.scram_users import parse_add_scram
    from millstream.cli.secure import client_settings, write_properties
    from millstream.cluster.offline import submit_offline
    from millstream.cluster.security_commands import CreateAcls

    if (broker_data / "meta.properties").exists():
        raise CommandFailed(
            f"the broker in {broker_data} has run without --secure; its data would belong to nobody. Use "
            f"another "
            "--data-dir, or secure it step by step (docs/security.md)"
        )
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        make_certificates(folder, [*dict.fromkeys((*hosts, "localhost", "127.0.0.1"))], ADMIN, 825)
        users = []
        for user in (*ACLS, ADMIN):  # the admin last: he says that all is there
            password = secrets.token_urlsafe(18)
            users.append(parse_add_scram(f"SCRAM-SHA-512=[name={user},password={password}]"))
            client = client_settings(folder, "", user, password)
            del client["bootstrap.servers"]
            prefix = PREFIXES.get(user, "")
            if user != ADMIN:
                write_properties(
                    folder / f"{user}.properties", {prefix + name: value for name, value in client.items()}
                )
        add_users(broker_data, users)
        acls = [
            AclBinding(
                kind,
                name,
                PatternType.PREFIXED if prefixed else PatternType.LITERAL,
                f"User:{user}",
                "*",
                operation,
                Permission.ALLOW,
            )
            for user, acls in ACLS.items()
            for kind, name, prefixed, operations in acls
            for operation in operations
        ]
        from millstream.broker.server import METADATA_FOLDER

        asyncio.run(submit_offline(broker_data / METADATA_FOLDER, CreateAcls(acls)))
        write_properties(folder / f"{ADMIN}.properties", client)
    except OSError as error:
        raise CommandFailed(f"cannot write to {folder}: {(error.strerror or str(error)).lower()}") from None
