"""`millstream acls`: what kafka-acls.sh does."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from millstream.cli import cluster_access, shared_options
from millstream.cli.errors import CommandFailed, UsageError
from millstream.cli.output import Report, check_style, emit
from millstream.wire.acls import (
    CLUSTER_NAME,
    OPERATIONS,
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

if TYPE_CHECKING:
    from millstream.client.security_admin import SecurityAdmin

REMOVED = {"--force": ""}  # here it still is an option
ACTIONS = "--list, --add, --remove. "
RESOURCES = (
    "You must provide at least one resource: --topic <topic> or --cluster or --group <group> or "
    "--delegation-token <Delegation Token ID>"
)
PATTERN_TYPES = {each.name.lower(): each for each in PatternType if each}
Texts = list[str]


class Pattern(NamedTuple):
    """Resources, as in a binding; or, with a pattern type of ANY or MATCH, a filter of bindings."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType

    def __str__(self) -> str:
        return (
            f"ResourcePattern(resourceType={self.resource_type.name}, name={self.name}, "
            f"patternType={self.pattern_type.name})"
        )


class Entry(NamedTuple):
    principal: str
    host: str
    operation: Operation
    permission: Permission

    def __str__(self) -> str:
        return (
            f"(principal={self.principal}, host={self.host}, operation={self.operation.name}, "
            f"permissionType={self.permission.name})"
        )


CLUSTER = Pattern(ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL)


def operation_name(operation: Operation) -> str:
    return "".join(word.capitalize() for word in operation.name.split("_"))


BY_NAME = {operation_name(each).lower(): each for each in Operation if each >= Operation.ALL}


def prepare(arguments: list[str]) -> list[str]:
    return shared_options.action_options(arguments, ("list", "add", "remove"))


def command(
    list_acls: Annotated[bool, typer.Option("--list", help="Show ACLs, all or those of resources.")] = False,
    add: Annotated[bool, typer.Option("--add", help="Add ACLs.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Remove ACLs.")] = False,
    topic: Annotated[Texts | None, typer.Option(help="A topic; '*' for all.", metavar="NAME")] = None,
    group: Annotated[Texts | None, typer.Option(help="A consumer group; '*' for all.", metavar="ID")] = None,
    cluster: Annotated[bool, typer.Option("--cluster", help="The cluster.")] = False,
    transactional_id: Annotated[
        Texts | None, typer.Option(help="A transactional id; '*' for all.", metavar="ID")
    ] = None,
    delegation_token: Annotated[
        Texts | None, typer.Option(help="A delegation token; '*' for all.", metavar="ID")
    ] = None,
    user_principal: Annotated[
        Texts | None,
        typer.Option(help="A user, for CreateTokens and DescribeTokens: User:NAME.", metavar="PRINCIPAL"),
    ] = None,
    resource_pattern_type: Annotated[
        str,
        typer.Option(
            help="literal or prefixed; to list and remove also any (either type, exact name) and match (all "
            "that apply to the resource).",
            metavar="TYPE",
        ),
    ] = "literal",
    allow_principal: Annotated[
        Texts | None, typer.Option(help="Who is allowed: User:NAME, or User:* for all.", metavar="PRINCIPAL")
    ] = None,
    deny_principal: Annotated[
        Texts | None, typer.Option(help="Who is denied. A denial wins.", metavar="PRINCIPAL")
    ] = None,
    allow_host: Annotated[
        Texts | None, typer.Option(help="From which address (all).", metavar="HOST")
    ] = None,
    deny_host: Annotated[
        Texts | None, typer.Option(help="From which address not (all).", metavar="HOST")
    ] = None,
    operation: Annotated[
        Texts | None,
        typer.Option(help="Read, Write, Create, Delete, Alter, Describe, ... (All).", metavar="NAME"),
    ] = None,
    producer: Annotated[bool, typer.Option("--producer", help="What a producer to --topic needs.")] = False,
    consumer: Annotated[
        bool, typer.Option("--consumer", help="What a consumer of --topic in --group needs.")
    ] = False,
    idempotent: Annotated[
        bool, typer.Option("--idempotent", help="With --producer: idempotent without WRITE on a topic.")
    ] = False,
    principal: Annotated[
        Texts | None, typer.Option(help="With --list: only ACLs of this principal.", metavar="PRINCIPAL")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Remove without asking.")] = False,
    bootstrap_controller: Annotated[str, typer.Option(hidden=True)] = "",
    bootstrap_server: shared_options.Bootstrap = "",
    command_config: shared_options.CommandConfig = "",
    output: shared_options.Output = "lines",
    version: shared_options.Version = False,
) -> int:
    """Show, add and remove access control lists: who may do what with which resource."""
    if version:
        return shared_options.show_version()
    style = check_style(output)
    if bootstrap_controller:
        raise UsageError(
            "--bootstrap-controller: a controller has no address of its own here: use --bootstrap-server"
        )
    action = shared_options.chosen_action({"list": list_acls, "add": add, "remove": remove}, ACTIONS)
    if resource_pattern_type.lower() not in PATTERN_TYPES:
        raise UsageError(f"Unknown resource-pattern-type: {resource_pattern_type}")
    pattern_type = PATTERN_TYPES[resource_pattern_type.lower()]
    given = {
        "operation": operation,
        "deny-principal": deny_principal,
        "deny-host": deny_host,
        "allow-principal": allow_principal,
        "allow-host": allow_host,
        "producer": producer,
        "consumer": consumer,
    }
    if action == "list":
        shared_options.refuse_other_options("list", {**given, "operation": None}, ())
    for role, chosen in (("producer", producer), ("consumer", consumer)):
        if chosen:
            inferred = {name: given[name] for name in ("operation", "deny-principal", "deny-host")}
            shared_options.refuse_other_options(role, inferred, ())
    if principal and action != "list":
        raise UsageError("The --principal option is only available if --list is set")
    if producer and not topic:
        raise UsageError("With --producer you must specify a --topic")
    if idempotent and not producer:
        raise UsageError("The --idempotent option is only available if --producer is set")
    if consumer and (not topic or not group or (not producer and (cluster or transactional_id))):
        raise UsageError(
            "With --consumer you must specify a --topic and a --group and no --cluster or "
            "--transactional-id option should be specified."
        )
    patterns = [
        Pattern(kind, name.strip(), pattern_type)
        for kind, names in (
            (ResourceType.TOPIC, topic),
            (ResourceType.GROUP, group),
            (ResourceType.TRANSACTIONAL_ID, transactional_id),
            (ResourceType.DELEGATION_TOKEN, delegation_token),
            (ResourceType.USER, user_principal),
        )
        for name in names or ()
    ]
    if pattern_type is PatternType.LITERAL and (cluster or idempotent):
        patterns.append(CLUSTER)
    wanted: dict[Pattern, list[Entry]] = {}
    if action != "list":
        who = Who(
            principals(allow_principal), hosts(allow_host), principals(deny_principal), hosts(deny_host)
        )
        wanted = entries_by_pattern(
            list(dict.fromkeys(patterns)), who, operation, producer, consumer, idempotent
        )
    if action == "add":
        if pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
            raise UsageError(
                f"A '--resource-pattern-type' value of '{pattern_type.name}' is not valid when adding acls."
            )
        if not all(wanted.values()):
            raise UsageError(
                "You must specify one of: --allow-principal, --deny-principal when trying to add ACLs."
            )
    properties = cluster_access.read_client_properties(command_config)
    with cluster_access.connect(bootstrap_server, properties, "millstream-acls") as connected:
        from millstream.client.security_admin import SecurityAdmin

        admin = SecurityAdmin(connected)
        if action == "list":
            report = show(admin, patterns, principals(principal))
        elif action == "add":
            report = create(admin, wanted)
        else:
            report = delete(admin, wanted, force)
    emit(report, style)
    return 0


# --- what was asked for -------------------------------------------------------------------------------------


class Who(NamedTuple):
    allowed: Sequence[str]
    allowed_hosts: Sequence[str]
    denied: Sequence[str]
    denied_hosts: Sequence[str]

    def entries(self, operations: Iterable[Operation]) -> list[Entry]:
        operations = list(operations)
        return [
            Entry(principal, host, operation, permission)
            for principals, hosts, permission in (
                (self.allowed, self.allowed_hosts, Permission.ALLOW),
                (self.denied, self.denied_hosts, Permission.DENY),
            )
            for principal in principals
            for operation in operations
            for host in hosts
        ]


def principals(texts: Sequence[str] | None) -> list[str]:
    found = [text.strip() for text in texts or ()]
    for text in found:
        kind, colon, _ = text.partition(":")
        if not kind or not colon:
            raise CommandFailed(f"expected a string in format principalType:principalName but got {text}")
    return list(dict.fromkeys(found))


def hosts(texts: Sequence[str] | None) -> list[str]:
    return list(dict.fromkeys(text.strip() for text in texts)) if texts else ["*"]


def chosen_operations(names: Sequence[str] | None) -> list[Operation]:
    found = []
    for name in names or ("All",):
        operation = BY_NAME.get(name.strip().lower())
        if operation is None:
            known = ", ".join(operation_name(each) for each in BY_NAME.values())
            raise UsageError(f"--operation {name}: use one of {known}")
        found.append(operation)
    return list(dict.fromkeys(found))


def entries_by_pattern(
    patterns: Sequence[Pattern],
    who: Who,
    operations: Sequence[str] | None,
    producer: bool,
    consumer: bool,
    idempotent: bool,
) -> dict[Pattern, list[Entry]]:
    if not patterns:
        raise UsageError(RESOURCES)
    found: dict[Pattern, list[Entry]] = {}

    def put(pattern: Pattern, *needed: Operation) -> None:
        entries = found.setdefault(pattern, [])
        entries += [entry for entry in who.entries(needed) if entry not in entries]

    for pattern in patterns:
        kind = pattern.resource_type
        if producer and kind is ResourceType.TOPIC:
            put(pattern, Operation.WRITE, Operation.DESCRIBE, Operation.CREATE)
        if producer and kind is ResourceType.TRANSACTIONAL_ID:
            put(pattern, Operation.WRITE, Operation.DESCRIBE)
        if consumer and kind is ResourceType.TOPIC:
            put(pattern, Operation.READ, Operation.DESCRIBE)
        if consumer and kind is ResourceType.GROUP:
            put(pattern, Operation.READ)
        if not producer and not consumer:
            put(pattern, *chosen_operations(operations))
    if producer and idempotent:
        put(CLUSTER, Operation.IDEMPOTENT_WRITE)
    for pattern, entries in found.items():
        supported = {*OPERATIONS[pattern.resource_type], Operation.ALL}
        if any(entry.operation not in supported for entry in entries):
            names = ", ".join(operation_name(each) for each in sorted(supported))
            raise UsageError(f"ResourceType {pattern.resource_type.name} only supports operations {names}")
    return found


# --- what is done -------------------------------------------------------------------------------------------


def block(title: str, entries: Iterable[object]) -> str:
    lines = "\n".join(f"\t{entry}" for entry in entries)
    return f"{title}: \n {lines} \n"


def facts(pattern: Pattern, entry: Entry) -> dict[str, Any]:
    return {
        "resource_type": pattern.resource_type.name,
        "resource_name": pattern.name,
        "pattern_type": pattern.pattern_type.name,
        "principal": entry.principal,
        "host": entry.host,
        "operation": entry.operation.name,
        "permission": entry.permission.name,
    }


def report_of(lines: list[str], acls: dict[Pattern, list[Entry]]) -> Report:
    data = [facts(pattern, entry) for pattern, entries in acls.items() for entry in entries]
    columns = ["Resource", "Name", "Pattern", "Principal", "Host", "Operation", "Permission"]
    return Report(lines, data, columns, [list(row.values()) for row in data])


def show(admin: "SecurityAdmin", patterns: Sequence[Pattern], of: Sequence[str]) -> Report:
    found: dict[Pattern, list[Entry]] = {}
    filters = [AclFilter(*pattern) for pattern in patterns] or [AclFilter()]
    for acl in dict.fromkeys(acl for wanted in filters for acl in admin.describe_acls(wanted)):
        pattern = Pattern(ResourceType(acl.resource_type), acl.name, PatternType(acl.pattern_type))
        entry = Entry(acl.principal, acl.host, Operation(acl.operation), Permission(acl.permission))
        if not of or entry.principal in of:
            found.setdefault(pattern, []).append(entry)
    lines: list[str] = []
    for principal in of or [""]:
        if principal:
            lines.append(f"ACLs for principal `{principal}`")
        for pattern, entries in found.items():
            own = [entry for entry in entries if not principal or entry.principal == principal]
            if own:
                lines.append(block(f"Current ACLs for resource `{pattern}`", own))
    return report_of(lines, found)


def binding(pattern: Pattern, entry: Entry) -> AclBinding:
    return AclBinding(
        pattern.resource_type,
        pattern.name,
        pattern.pattern_type,
        entry.principal,
        entry.host,
        entry.operation,
        entry.permission,
    )


def create(admin: "SecurityAdmin", wanted: dict[Pattern, list[Entry]]) -> Report:
    lines = []
    for pattern, entries in wanted.items():
        lines.append(block(f"Adding ACLs for resource `{pattern}`", entries))
        admin.create_acls(binding(pattern, entry) for entry in entries)
    return report_of(lines, wanted)


def delete(admin: "SecurityAdmin", wanted: dict[Pattern, list[Entry]], force: bool) -> Report:
    removed: dict[Pattern, list[Entry]] = {}
    for pattern, entries in wanted.items():
        if not force and not confirmed(question(pattern, entries)):
            continue
        filters = [AclFilter(*binding(pattern, entry)) for entry in entries] or [AclFilter(*pattern)]
        admin.delete_acls(filters)
        removed[pattern] = entries
    return report_of([], removed)


def question(pattern: Pattern, entries: Sequence[Entry]) -> str:
    if not entries:
        return f"Are you sure you want to delete all ACLs for resource filter `{pattern}`? (y/n)"
    lines = "\n".join(f"\t{entry}" for entry in entries)
    return f"Are you sure you want to remove ACLs: \n {lines} \n from resource filter `{pattern}`? (y/n)"


def confirmed(text: str) -> bool:
    print(text, flush=True)
    try:
        return input().strip().lower() == "y"
    except EOFError:
        return False
