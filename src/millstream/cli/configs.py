"""`millstream configs`: what kafka-configs.sh does, for topics, brokers, groups and client metrics. Quotas of
users, client ids and addresses are in `configs_quotas`.

A setting's value can come from several places. Each line shows the value that counts and, as synonyms, all
the places it was looked for, the winning one first.
"""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from millstream.cli import cluster_access, configs_quotas, scram_users, shared_options
from millstream.cli.errors import CommandFailed, UsageError
from millstream.cli.output import Report, check_style, emit

if TYPE_CHECKING:
    from millstream.client.admin import Admin, ConfigEntry

REMOVED = {
    "--zk-tls-config-file": "tools talk to brokers now: use --bootstrap-server HOST:PORT",
}

CONTROLLER = (
    "a controller has no address of its own here: use --bootstrap-server HOST:PORT, brokers answer for it"
)

QUOTA_TYPES = ("users", "clients", "ips")


class EntityType(NamedTuple):
    """A type of entity: its number in the protocol, its singular in Kafka's lines, and where its own values
    come from."""

    number: int
    singular: str
    source: int


ENTITY_TYPES = {
    "topics": EntityType(2, "topic", 1),
    "brokers": EntityType(4, "broker", 2),
    "broker-loggers": EntityType(8, "broker-logger", 6),
    "client-metrics": EntityType(16, "client-metric", 7),
    "groups": EntityType(32, "group", 8),
}
DEFAULT_BROKER_SOURCE = 3


class Entity(NamedTuple):
    type: str
    name: str | None  # None: all there are; "": the default of all

    @property
    def entity_type(self) -> EntityType:
        return ENTITY_TYPES[self.type]


def prepare(arguments: list[str]) -> list[str]:
    return shared_options.action_options(arguments, ("describe", "alter"))


def command(
    describe: Annotated[bool, typer.Option("--describe", help="Show settings.")] = False,
    alter: Annotated[bool, typer.Option("--alter", help="Change settings.")] = False,
    entity_types: Annotated[
        list[str] | None,
        typer.Option(
            "--entity-type",
            help="topics, brokers, broker-loggers, client-metrics, groups; users, clients or ips.",
            metavar="TYPE",
        ),
    ] = None,
    entity_names: Annotated[
        list[str] | None,
        typer.Option("--entity-name", help="Name of the topic, id of the broker, ...", metavar="NAME"),
    ] = None,
    entity_default: Annotated[
        bool,
        typer.Option("--entity-default", help="The default of all brokers, users, clients or ips."),
    ] = False,
    topic: Annotated[
        str, typer.Option(help="Short for --entity-type topics --entity-name NAME.", metavar="NAME")
    ] = "",
    broker: Annotated[
        str, typer.Option(help="Short for --entity-type brokers --entity-name ID.", metavar="ID")
    ] = "",
    broker_defaults: Annotated[
        bool, typer.Option("--broker-defaults", help="Short for --entity-type brokers --entity-default.")
    ] = False,
    broker_logger: Annotated[str, typer.Option(help="The log levels of a broker.", metavar="ID")] = "",
    client_metrics: Annotated[str, typer.Option(help="A client metrics subscription.", metavar="NAME")] = "",
    group: Annotated[str, typer.Option(help="A consumer group.", metavar="ID")] = "",
    add_config: Annotated[
        str,
        typer.Option(
            help="Settings to add or change. Brackets hold lists: k1=v1,k2=[v1,v2].", metavar="K=V,..."
        ),
    ] = "",
    add_config_file: Annotated[
        str, typer.Option(help="Properties file with settings to add or change.", metavar="FILE")
    ] = "",
    delete_config: Annotated[str, typer.Option(help="Settings to remove.", metavar="K,...")] = "",
    all_settings: Annotated[
        bool, typer.Option("--all", help="Show all settings, also those with their default value.")
    ] = False,
    user: Annotated[str, typer.Option(help="The quotas of a user.", metavar="NAME")] = "",
    user_defaults: Annotated[
        bool, typer.Option("--user-defaults", help="Those of all users without their own.")
    ] = False,
    client: Annotated[str, typer.Option(help="The quotas of a client id.", metavar="ID")] = "",
    client_defaults: Annotated[
        bool, typer.Option("--client-defaults", help="Those of all client ids without their own.")
    ] = False,
    ip: Annotated[str, typer.Option(help="The quotas of an address.", metavar="ADDRESS")] = "",
    ip_defaults: Annotated[
        bool, typer.Option("--ip-defaults", help="Those of all addresses without their own.")
    ] = False,
    bootstrap_controller: Annotated[str, typer.Option(hidden=True)] = "",
    bootstrap_server: shared_options.Bootstrap = "",
    command_config: shared_options.CommandConfig = "",
    output: shared_options.Output = "lines",
    version: shared_options.Version = False,
) -> int:
    """Show and change the settings of topics and brokers."""
    if version:
        return shared_options.show_version()
    style = check_style(output)
    action = shared_options.chosen_action({"describe": describe, "alter": alter}, "--describe, --alter")
    types, names = entity_types or [], list(entity_names or ())
    of_quotas = {"users": user, "clients": client, "ips": ip}
    default_quotas = [
        kind
        for kind, given in (("users", user_defaults), ("clients", client_defaults), ("ips", ip_defaults))
        if given
    ]
    if any(of_quotas.values()) or default_quotas or any(kind in QUOTA_TYPES for kind in types):
        if any(kind not in QUOTA_TYPES for kind in types):
            raise UsageError("quotas of users, clients and ips go with no other entity type")
        with_default = [*names, *[None] * (len(types) - len(names))] if entity_default else names
        entities = configs_quotas.chosen(types, with_default, of_quotas, default_quotas)
        return quotas(action, entities, add_config, delete_config, bootstrap_server, command_config, style)
    if len(types) > 1 or len(names) > 1:
        raise UsageError("name one entity at a time")
    entity_type, entity_name = "".join(types), "".join(names)
    short = {
        "topics": topic,
        "brokers": broker,
        "broker-loggers": broker_logger,
        "client-metrics": client_metrics,
        "groups": group,
    }
    if bootstrap_controller:
        raise UsageError(f"--bootstrap-controller: {CONTROLLER}")
    entity = chosen_entity(entity_type, entity_name, entity_default, short, broker_defaults)
    changes = parse_added(add_config)
    removals = [name.strip() for name in delete_config.split(",") if name.strip()]
    if action == "describe":
        if entity == Entity("broker-loggers", None):
            raise UsageError("An entity name must be specified with --describe of broker-loggers")
        shared_options.refuse_other_options(
            "describe",
            {"add-config": add_config, "add-config-file": add_config_file, "delete-config": delete_config},
            (),
        )
    else:
        if add_config and add_config_file:
            raise UsageError("Only one of --add-config or --add-config-file must be specified")
        changes = {**cluster_access.read_properties(add_config_file), **changes}
        check_names(changes)
        check_alteration(entity, all_settings, bool(changes), bool(removals))
    properties = cluster_access.read_client_properties(command_config)
    with cluster_access.connect(bootstrap_server, properties, "millstream-configs") as cluster:
        from millstream.client.admin import Admin

        admin = Admin(cluster)
        report = (
            show(admin, entity, all_settings)
            if action == "describe"
            else change(admin, entity, changes, removals)
        )
    emit(report, style)
    return 0


def quotas(
    action: str,
    entities: Sequence[configs_quotas.QuotaEntity],
    add_config: str,
    delete_config: str,
    bootstrap_server: str,
    command_config: str,
    style: str,
) -> int:
    added = parse_added(add_config)
    removed = [name.strip() for name in delete_config.split(",") if name.strip()]
    if action == "alter" and not added and not removed:
        raise UsageError("At least one of --add-config or --delete-config must be specified with --alter")
    # A user has quotas and credentials, and is described by both.
    user = entities[0].name if [entity.type for entity in entities] == ["users"] else None
    if scram_users.are_credentials([*added, *removed]) and not user:
        raise UsageError("SCRAM credentials belong to one user: name it, alone")
    properties = cluster_access.read_client_properties(command_config)
    with cluster_access.connect(bootstrap_server, properties, "millstream-configs") as cluster:
        from millstream.client.security_admin import SecurityAdmin

        admin = SecurityAdmin(cluster)
        if action == "alter":
            if user and scram_users.are_credentials([*added, *removed]):
                report = scram_users.alter(cluster, user, added, removed)
            else:
                report = configs_quotas.change(admin, entities, added, removed)
        else:
            report = configs_quotas.show(admin, entities)
            if entities[0].type == "users" and len(entities) == 1 and entities[0].name != "":
                users = scram_users.describe(cluster, entities[0].name or "")
                report = Report(
                    [*report.lines, *users.lines],
                    [*report.data, *users.data],
                    report.columns,
                    [*report.rows, *users.rows],
                )
    emit(report, style)
    return 0


# --- what was asked for -------------------------------------------------------------------------------------


def chosen_entity(
    entity_type: str, entity_name: str, entity_default: bool, short: dict[str, str], broker_defaults: bool
) -> Entity:
    named = [(entity_type, name) for entity_type, name in short.items() if name]
    if broker_defaults:
        named.append(("brokers", ""))
    if (entity_type or entity_name or entity_default) and named:
        raise UsageError(
            "--entity-type, --entity-name and --entity-default cannot be combined with their short forms "
            "(--topic, "
            "--broker, ...)"
        )
    if entity_name and entity_default:
        raise UsageError("--entity-name and --entity-default name two entities: use one of them")
    if len(named) > 1:
        raise UsageError("name one entity at a time")
    if named:
        found = Entity(*named[0])
    elif not entity_type:
        raise UsageError(
            "At least one entity type must be specified: --topic NAME, --broker ID, --entity-type TYPE ..."
        )
    elif entity_type not in ENTITY_TYPES:
        raise UsageError(
            f"Invalid entity type {entity_type}, the entity type must be one of {', '.join(ENTITY_TYPES)}"
        )
    elif entity_default:
        if entity_type != "brokers":
            raise UsageError(f"there is no default for all {entity_type}: --entity-default goes with brokers")
        found = Entity(entity_type, "")
    else:
        found = Entity(entity_type, entity_name or None)
    if found.type in ("brokers", "broker-loggers") and found.name and not found.name.isdecimal():
        raise UsageError(
            f"The entity name for {found.type} must be a valid integer broker id, found: {found.name}"
        )
    return found


def check_alteration(entity: Entity, all_settings: bool, adds: bool, removes: bool) -> None:
    if all_settings:
        raise UsageError('Option "[all]" can\'t be used with option "[alter]"')
    if entity.name is None:
        raise UsageError(f"An entity name must be specified with --alter of {entity.type}")
    if not adds and not removes:
        raise UsageError(
            "At least one of --add-config, --add-config-file, or --delete-config must be specified with "
            "--alter"
        )


def parse_added(text: str) -> dict[str, str]:
    """`k1=v1,k2=[v1,v2]`: commas separate, except inside brackets."""
    items: list[str] = []
    depth = 0
    current = ""
    for char in text:
        depth += (char == "[") - (char == "]")
        if char == "," and depth <= 0:
            items.append(current)
            current = ""
        else:
            current += char
    items.append(current)
    found = {}
    for item in items:
        if not item.strip():
            continue
        name, equals, value = (part.strip() for part in item.partition("="))
        whole = value.startswith("[") and value.endswith("]")
        if not equals or not name or ("=" in value and not whole) or value.count("[") != value.count("]"):
            raise UsageError(
                f"--add-config {item.strip()}: all settings to be added must be in the format key=value, or "
                f"key=[value] "
                "where the value contains commas or equals signs"
            )
        found[name] = value[1:-1] if whole else value
    return found


def check_names(changes: dict[str, str]) -> None:
    for name in changes:
        if not re.fullmatch(r"[$a-zA-Z0-9._-]*", name):
            raise UsageError(f"Invalid character found for config key: {name}")


# --- describe -----------------------------------------------------------------------------------------------


def show(admin: "Admin", entity: Entity, all_settings: bool) -> Report:
    entities = [entity]
    if entity.name is None:
        entities = [Entity(entity.type, name) for name in all_names(admin, entity.type)]
    elif entity.name and not all_settings and not is_known(admin, entity):
        raise CommandFailed(
            f"The {entity.entity_type.singular} '{entity.name}' doesn't exist "
            "and doesn't have dynamic config."
        )
    report = Report([], [], ["Entity", "Setting", "Value", "Source"], [])
    lines: list[str] = []
    rows: list[Sequence[Any]] = []
    for one in entities:
        settings = settings_of(admin, one, all_settings)
        lines.append(headline(one, all_settings))
        lines += [setting_line(setting) for setting in settings]
        report.data.append(facts(one, settings))
        title = f"{one.entity_type.singular} {one.name or 'default'}"
        rows += [
            [title, setting.name, shown(setting.value), source_name(setting.source)] for setting in settings
        ]
    report.lines = lines
    report.rows = rows
    return report


def all_names(admin: "Admin", entity_type: str) -> list[str]:
    if entity_type == "topics":
        return admin.topic_names()
    if entity_type in ("brokers", "broker-loggers"):
        ids = [str(node.id) for node in admin.brokers()]
        return [*ids, ""] if entity_type == "brokers" else ids
    if entity_type == "groups":
        return sorted({*group_ids(admin), *(groups_with_settings(admin) or ())})
    return admin.config_resources(ENTITY_TYPES[entity_type].number)


def is_known(admin: "Admin", entity: Entity) -> bool:
    """Brokers before 4.1 do not tell which groups have settings: there any group may have some."""
    if entity.type != "groups":
        return entity.name in all_names(admin, entity.type)
    configured = groups_with_settings(admin)
    return configured is None or entity.name in configured or entity.name in group_ids(admin)


def group_ids(admin: "Admin") -> list[str]:
    from millstream.client.groups import Groups

    return [group.group_id for group in Groups(admin.cluster).listed()]


def groups_with_settings(admin: "Admin") -> list[str] | None:
    """None if the broker does not tell, or not to us."""
    from millstream.wire.errors import ErrorCode, KafkaError

    try:
        return admin.config_resources(ENTITY_TYPES["groups"].number)
    except KafkaError as error:
        if error.code in (ErrorCode.unsupported_version, ErrorCode.cluster_authorization_failed):
            return None
        raise


def settings_of(admin: "Admin", entity: Entity, all_settings: bool) -> "list[ConfigEntry]":
    from millstream.wire.errors import ErrorCode, KafkaError

    key = (entity.entity_type.number, entity.name or "")
    found = admin.describe_configs([key], synonyms=True).get(key, [])
    if isinstance(found, KafkaError):
        if found.code is ErrorCode.invalid_request and entity.type in ("broker-loggers", "client-metrics"):
            raise CommandFailed(f"{entity.type} are not supported by this broker: {found.message}")
        raise CommandFailed(f"Error while executing config command : {found.message}")
    if not all_settings and entity.type != "broker-loggers":
        own = DEFAULT_BROKER_SOURCE if key == (4, "") else entity.entity_type.source
        found = [setting for setting in found if setting.source == own]
    return sorted(found, key=lambda setting: setting.name)


def headline(entity: Entity, all_settings: bool) -> str:
    if entity.name == "":
        return f"Default configs for {entity.type} in the cluster are:"
    return (
        f"{'All' if all_settings else 'Dynamic'} configs for {entity.entity_type.singular} {entity.name} are:"
    )


def setting_line(setting: "ConfigEntry") -> str:
    synonyms = ", ".join(
        f"{source_name(setting.source)}:{setting.name}={shown(setting.value)}" for setting in setting.synonyms
    )
    sensitive = str(setting.sensitive).lower()
    return f"  {setting.name}={shown(setting.value)} sensitive={sensitive} synonyms={{{synonyms}}}"


def facts(entity: Entity, settings: "list[ConfigEntry]") -> dict[str, Any]:
    return {
        "entity_type": entity.type,
        "entity_name": entity.name or None,
        "configs": [
            {
                "name": setting.name,
                "value": setting.value,
                "source": source_name(setting.source),
                "sensitive": setting.sensitive,
                "read_only": setting.read_only,
                "synonyms": [
                    {"name": synonym.name, "value": synonym.value, "source": source_name(synonym.source)}
                    for synonym in setting.synonyms
                ],
            }
            for setting in settings
        ],
    }


def shown(value: str | None) -> str:
    return "null" if value is None else value


def source_name(number: int) -> str:
    from millstream.client.admin import SOURCES

    return SOURCES.get(number, "UNKNOWN")


# --- alter --------------------------------------------------------------------------------------------------


def check_known(admin: "Admin", entity: Entity, added: Mapping[str, str], removed: Sequence[str]) -> None:
    """Brokers remove a name that does not exist without a word, and take any new one for a broker, since a
    plugin may know it. Both are typos more often than not, so a removed name has to exist, and a new one
    must not look like a misspelt one. Names that are new to topics and groups are the broker's to refuse."""
    from millstream.settings.suggestions import did_you_mean

    known = known_names(admin, entity) if removed or entity.type in ("brokers", "broker-loggers") else set()
    if not known:
        return
    for name in (*removed, *added):
        if name in known or name.startswith("listener.name."):
            continue
        hint = did_you_mean(name, known)
        if entity.type == "broker-loggers":
            raise CommandFailed(f"Invalid broker logger(s): {name}{hint}")
        if name in removed or (entity.type == "brokers" and hint):
            raise CommandFailed(f"Unknown {entity.entity_type.singular} config name: {name}{hint}")


def known_names(admin: "Admin", entity: Entity) -> set[str]:
    """Of all settings that the entity can have, and of those that it has; empty where the broker does not
    serve such entities."""
    keys = [(entity.entity_type.number, entity.name or "")]
    if entity == Entity("brokers", ""):
        # The defaults of all brokers are described by what is set alone.
        keys.append((entity.entity_type.number, str(admin.brokers()[0].id)))
    from millstream.wire.errors import KafkaError

    answers = admin.describe_configs(keys).values()
    return {setting.name for found in answers if not isinstance(found, KafkaError) for setting in found}


def change(admin: "Admin", entity: Entity, added: dict[str, str], removed: list[str]) -> Report:
    from millstream.client.admin import DELETE, SET

    check_known(admin, entity, added, removed)
    key = (entity.entity_type.number, entity.name or "")
    operations: list[tuple[str, int, str | None]] = [(name, SET, value) for name, value in added.items()]
    operations += [(name, DELETE, None) for name in removed]
    problem = admin.alter_configs({key: operations}).get(key)
    if problem is not None:
        raise CommandFailed(f"Error while executing config command : {problem.message}")
    if entity.name == "":
        line = f"Completed updating default config for {entity.type} in the cluster."
    else:
        line = f"Completed updating config for {entity.entity_type.singular} {entity.name}."
    data = {"entity_type": entity.type, "entity_name": entity.name or None, "set": added, "deleted": removed}
    rows = [[name, value] for name, value in added.items()] + [[name, "(deleted)"] for name in removed]
    return Report([line], data, ["Setting", "Value"], rows)
