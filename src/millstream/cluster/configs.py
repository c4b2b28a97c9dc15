"""Dynamic settings: changes of some (IncrementalAlterConfigs) and of all (AlterConfigs) settings of a
resource.

What a setting may be is the settings room's knowledge, given in as `context.validate`. Here is what the
controller adds: does the resource exist, what do append and subtract come to, and which partitions must be
looked at again when `min.insync.replicas` or `unclean.leader.election.enable` changes.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar
from uuid import UUID

from millstream.cluster.commands import OK, AlterConfigs, ConfigChange, ConfigOp, Resource, Result, SetConfigs
from millstream.cluster.context import Context, Decision
from millstream.cluster.image import Image
from millstream.cluster.metadata_records import (
    SCOPE_BROKER,
    SCOPE_CLIENT_METRICS,
    SCOPE_GROUP,
    SCOPE_TOPIC,
    Config,
    Record,
)
from millstream.cluster.partitions import Rules, reelect
from millstream.cluster.security import ACCOUNT_SCOPES, change_account
from millstream.cluster.topic_names import name_problem
from millstream.settings.values import InvalidSetting
from millstream.wire.errors import ErrorCode, KafkaError

T = TypeVar("T")

MIN_ISR = "min.insync.replicas"
MAX_VALUE_BYTES = 32767
UNCLEAN = "unclean.leader.election.enable"


def check_settings(context: Context, scope: str, name: str, values: Mapping[str, str]) -> None:
    if any(len(value.encode("utf-8", "surrogatepass")) > MAX_VALUE_BYTES for value in values.values()):
        raise KafkaError(
            ErrorCode.invalid_config,
            "The configuration value cannot be added because it exceeds the maximum value size of "
            f"{MAX_VALUE_BYTES} bytes.",
        )
    try:
        context.validate(scope, name, values)
    except InvalidSetting as problem:
        raise KafkaError(ErrorCode.invalid_config, problem.message) from problem


def rules_for(image: Image, context: Context, topic_id: UUID, live: set[int], active: set[int]) -> Rules:
    """What holds for a topic: its own settings first, then the default of all brokers, then the cluster's
    defaults.

    Never a single broker's own settings: the answer must not depend on which broker is the controller.
    """
    of_topic = image.topic_config(topic_id)
    of_cluster = image.broker_config()
    min_isr = of_topic.get(MIN_ISR) or of_cluster.get(MIN_ISR)
    unclean = of_topic.get(UNCLEAN) or of_cluster.get(UNCLEAN)
    return Rules(
        live,
        active,
        context.min_insync_replicas if min_isr is None else int(min_isr),
        context.unclean_elections if unclean is None else unclean.strip().lower() == "true",
    )


# --- the two commands ---------------------------------------------------------------------------------------


def alter_configs(image: Image, command: AlterConfigs, context: Context) -> Decision:
    def changed(
        resource: Resource, changes: Sequence[ConfigChange], old: Mapping[str, str]
    ) -> dict[str, str]:
        return _incremental(context, resource, changes, old)

    return _decide(image, context, command.resources, changed, command.validate_only)


def set_configs(image: Image, command: SetConfigs, context: Context) -> Decision:
    def changed(
        resource: Resource, values: Mapping[str, str | None], old: Mapping[str, str]
    ) -> dict[str, str]:
        _refuse_nulls(name for name, value in values.items() if value is None)
        return {name: value for name, value in values.items() if value is not None}

    return _decide(image, context, command.resources, changed, command.validate_only)


def _decide(
    image: Image,
    context: Context,
    resources: Sequence[tuple[Resource, T]],
    changed: Callable[[Resource, T, Mapping[str, str]], dict[str, str]],
    validate_only: bool,
) -> Decision:
    records: list[Record] = []
    replies: dict[Resource, Result] = {}
    times = Counter(resource for resource, _ in resources)
    for resource, change in resources:
        try:
            if times[resource] > 1:
                raise KafkaError(ErrorCode.invalid_request, "Each resource must appear at most once.")
            if resource.scope in ACCOUNT_SCOPES:
                records += change_account(image, resource, change)  # type: ignore[arg-type]
                replies[resource] = OK
                continue
            _check_name(resource)
            key = _key(image, resource)
            old = {} if key is None else image.configs.get((resource.scope, key), {})
            new = changed(resource, change, old)
            check_settings(context, resource.scope, resource.name, new)
            if key is None:
                raise _not_there(resource)
            if resource.scope == SCOPE_BROKER and key and new.get(MIN_ISR) != old.get(MIN_ISR):
                raise KafkaError(
                    ErrorCode.invalid_config,
                    "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
                )
            # A broker's record is written even if nothing changed: it makes brokers load changed files again.
            if new != old or resource.scope == SCOPE_BROKER:
                records.append(Config(resource.scope, key, new))
            replies[resource] = OK
        except KafkaError as problem:
            replies[resource] = Result(problem.code, problem.message or None)
    if validate_only:
        return Decision((), replies)
    records += _consequences(image, context, [record for record in records if isinstance(record, Config)])
    return Decision(records, replies)


def _check_name(resource: Resource) -> None:
    """Refuse a name that no resource can have."""
    scope, name = resource
    if scope == SCOPE_BROKER:
        if name and (not (name.isascii() and name.removeprefix("-").isdigit()) or len(name) > 11):
            raise KafkaError(ErrorCode.invalid_request, "Unable to parse broker name as a base 10 number.")
        if name.startswith("-"):
            raise KafkaError(ErrorCode.invalid_request, "Invalid negative broker ID.")
    elif scope not in (SCOPE_TOPIC, SCOPE_GROUP, SCOPE_CLIENT_METRICS):
        raise KafkaError(ErrorCode.invalid_request, f"Unknown resource type {scope}")
    elif not name:
        raise KafkaError(ErrorCode.invalid_request, f"Default {scope} resources are not allowed.")
    elif scope == SCOPE_TOPIC and (problem := name_problem(name)) is not None:
        raise KafkaError(ErrorCode.invalid_topic_exception, problem)


def _key(image: Image, resource: Resource) -> str | None:
    """The key under which the image keeps the settings of a resource; None if there is no such topic or
    broker."""
    scope, name = resource
    if scope == SCOPE_TOPIC:
        topic = image.topics_by_name.get(name)
        return None if topic is None else topic.topic_id.hex
    if scope == SCOPE_BROKER and name:
        return str(int(name)) if image.knows_broker(int(name)) else None
    return name


def _not_there(resource: Resource) -> KafkaError:
    """Checked only for settings that are valid otherwise: a wrong value is reported first, as Kafka has
    it."""
    scope, name = resource
    if scope == SCOPE_TOPIC:
        return KafkaError(ErrorCode.unknown_topic_or_partition, f"The topic '{name}' does not exist.")
    return KafkaError(ErrorCode.broker_id_not_registered, f"No node with id {int(name)} found.")


def _refuse_nulls(names: Iterable[str]) -> None:
    without_value = list(names)
    if without_value:
        raise KafkaError(
            ErrorCode.invalid_request, "Null value not supported for : " + ", ".join(without_value)
        )


def _incremental(
    context: Context, resource: Resource, changes: Sequence[ConfigChange], old: Mapping[str, str]
) -> dict[str, str]:
    names = Counter(change.name for change in changes)
    twice = [name for name, times in names.items() if times > 1]
    if twice:
        raise KafkaError(ErrorCode.invalid_request, "Error due to duplicate config keys : " + ",".join(twice))
    _refuse_nulls(change.name for change in changes if change.value is None and change.op != ConfigOp.DELETE)
    values = dict(old)
    for change in changes:
        value = change.value or ""
        if change.op == ConfigOp.SET:
            values[change.name] = value
        elif change.op == ConfigOp.DELETE:
            values.pop(change.name, None)
        else:
            default = context.list_default(resource.scope, change.name)
            if default is None:
                raise KafkaError(
                    ErrorCode.invalid_config,
                    f"Can't {change.op.name} to key {change.name} because its type is not LIST.",
                )
            parts = [part for part in values.get(change.name, default).split(",") if part]
            given = value.rstrip(",").split(",")  # what ends in a comma names nothing after it
            values[change.name] = ",".join(_list_after(parts, change.op, given))
    return values


def _list_after(parts: list[str], op: ConfigOp, given: list[str]) -> list[str]:
    if op == ConfigOp.APPEND:
        return parts + [part for part in dict.fromkeys(given) if part not in parts]
    return [part for part in parts if part not in given]


def _consequences(image: Image, context: Context, configs: list[Config]) -> Iterable[Record]:
    """Partitions that these settings let have a leader again, or that need their ELR no longer."""

    def matters(config: Config) -> bool:
        old = image.configs.get((config.scope, config.key), {})
        return any(old.get(name) != config.values.get(name) for name in (MIN_ISR, UNCLEAN))

    relevant = [config for config in configs if matters(config)]
    whole_cluster = any((config.scope, config.key) == (SCOPE_BROKER, "") for config in relevant)
    topics = [UUID(hex=config.key) for config in relevant if config.scope == SCOPE_TOPIC]
    if whole_cluster:
        topics = list(image.partitions)
    if not topics:
        return
    after = image.copy()
    after.apply(configs, image.version)
    live, active = set(after.brokers), after.active_brokers()
    for topic_id in topics:
        rules = rules_for(after, context, topic_id, live, active)
        for partition in after.partitions[topic_id]:
            changed = reelect(partition, rules)
            if changed is not partition:
                yield changed
