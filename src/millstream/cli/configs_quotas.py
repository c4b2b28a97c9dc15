"""`millstream configs` for users, client ids and addresses: quotas."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from millstream.cli.errors import CommandFailed, UsageError
from millstream.cli.output import Report
from millstream.wire.errors import KafkaError

if TYPE_CHECKING:
    from millstream.client.security_admin import SecurityAdmin

KINDS = {"users": "user", "clients": "client-id", "ips": "ip"}
SINGULARS = {"users": "user-principal", "clients": "client-id", "ips": "ip"}
QUOTAS = {
    "ips": ("connection_creation_rate",),
    "users": (
        "consumer_byte_rate",
        "controller_mutation_rate",
        "producer_byte_rate",
        "request_percentage",
    ),
}


class QuotaEntity(NamedTuple):
    """`name` is "" for the default, None where all of the type are meant."""

    type: str
    name: str | None


def chosen(
    entity_types: Sequence[str],
    names: Sequence[str | None],
    short: Mapping[str, str],
    defaults: Sequence[str],
) -> list[QuotaEntity]:
    """`names` go with the types in their order; None stands for --entity-default."""
    found = [
        QuotaEntity(kind, None if index >= len(names) else names[index] or "")
        for index, kind in enumerate(entity_types)
    ]
    found += [QuotaEntity(kind, name) for kind, name in short.items() if name]
    found += [QuotaEntity(kind, "") for kind in defaults]
    types = [entity.type for entity in found]
    if len(set(types)) < len(types):
        raise UsageError("Duplicate entity type(s) specified: name each entity type once")
    if "ips" in types and len(types) > 1:
        raise UsageError("Only entity type(s) users and clients may be specified together")
    if len(names) > len(entity_types):
        raise UsageError("--entity-name must come with an --entity-type of its own")
    return sorted(found, key=lambda entity: list(KINDS).index(entity.type))


# --- describe -----------------------------------------------------------------------------------------------


def show(admin: "SecurityAdmin", entities: Sequence[QuotaEntity]) -> Report:
    from millstream.client.security_admin import DEFAULT, EXACT, SPECIFIED

    components: list[tuple[str, int, str | None]] = []
    for entity in entities:
        match_type = SPECIFIED if entity.name is None else EXACT if entity.name else DEFAULT
        components.append((KINDS[entity.type], match_type, entity.name or None))
    found = admin.describe_quotas(components, strict=True)
    lines, data, rows = [], [], []
    for parts, values in found.items():
        by_kind = dict(parts)
        label = ", ".join(
            f"the default {SINGULARS[kind]}"
            if by_kind[KINDS[kind]] is None
            else f"{SINGULARS[kind]} '{by_kind[KINDS[kind]]}'"
            for kind in KINDS
            if KINDS[kind] in by_kind
        )
        shown = {name: values[name] for name in sorted(values)}
        lines.append(
            f"Quota configs for {label} are " + ", ".join(f"{name}={value}" for name, value in shown.items())
        )
        data.append({"entity": dict(parts), "quotas": shown})
        rows += [[label, name, value] for name, value in shown.items()]
    return Report(lines, data, ["Entity", "Quota", "Value"], rows)


# --- alter --------------------------------------------------------------------------------------------------


def change(
    admin: "SecurityAdmin", entities: Sequence[QuotaEntity], added: Mapping[str, str], removed: Sequence[str]
) -> Report:
    if any(entity.name is None for entity in entities):
        kinds = ", ".join(entity.type for entity in entities)
        raise UsageError(f"An entity name must be specified with --alter of {kinds}")
    known = QUOTAS["ips" if entities[0].type == "ips" else "users"]
    for names, word in ((added, "added"), (removed, "deleted")):
        unknown = [name for name in names if name not in known]
        if unknown:
            kind, what = (
                ("ips", "connection quota") if known is QUOTAS["ips"] else (entities[0].type, "quota")
            )
            if kind == "users" and len(entities) == 1:
                what = "quota and SCRAM credential"
            raise CommandFailed(
                f"Only {what} configs can be {word} for '{kind}' using --bootstrap-server. Unexpected config "
                f"names: {', '.join(unknown)}; there are {', '.join(known)}"
            )
    values: dict[str, float | None] = {}
    for name, text in added.items():
        try:
            values[name] = float(text)
        except ValueError:
            raise CommandFailed(f"Cannot parse quota configuration value for {name}: {text}") from None
    values.update(dict.fromkeys(removed))
    entity = tuple((KINDS[each.type], each.name or None) for each in entities)
    try:
        if removed:
            check_there(admin, entities, removed)
        admin.alter_quotas(entity, values)
    except KafkaError as error:
        raise CommandFailed(f"Error while executing config command : {error.message}") from None
    first = entities[0]
    lines = [
        f"Completed updating config for {first.type[:-1]} {first.name}."
        if first.name
        else f"Completed updating default config for {first.type} in the cluster."
    ]
    rows = [[name, "(deleted)" if value is None else value] for name, value in values.items()]
    return Report(lines, {"entity": dict(entity), "set": values}, ["Quota", "Value"], rows)


def check_there(admin: "SecurityAdmin", entities: Sequence[QuotaEntity], removed: Sequence[str]) -> None:
    """A quota that is not set cannot be removed: it is a typo more often than not."""
    from millstream.client.security_admin import DEFAULT, EXACT

    components = [(KINDS[each.type], EXACT if each.name else DEFAULT, each.name or None) for each in entities]
    found = admin.describe_quotas(components, strict=True)
    there = {name for values in found.values() for name in values}
    missing = [name for name in removed if name not in there]
    if missing:
        raise CommandFailed(f"Invalid config(s): {','.join(missing)}")
