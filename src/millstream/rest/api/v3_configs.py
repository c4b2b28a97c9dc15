"""Version 3: settings of topics, of brokers, and of the whole cluster."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response

from millstream.client import Admin, Cluster
from millstream.client.admin import BROKER, DELETE, SET, SOURCES, TOPIC, ConfigEntry
from millstream.client.errors import check
from millstream.rest import errors
from millstream.rest.api.links import Json, Links, links
from millstream.rest.api.responses import (
    checked_object,
    done,
    flag_of,
    json_object,
    list_of,
    path_number,
    service_of,
    text_of,
    v3,
)
from millstream.rest.api.v3_clusters import node, nodes
from millstream.wire.errors import KafkaError

router = APIRouter(prefix="/v3/clusters/{cluster_id}", tags=["v3 configs"])
CLUSTER_WIDE = 3  # Kafka's number of a source


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose settings: Kafka's resource, its segments of paths, and what each setting says about it."""

    type: int
    name: str
    kind: str
    segments: tuple[object, ...]
    crn: tuple[tuple[str, object], ...]
    facts: tuple[tuple[str, object], ...]
    subject: str
    config: str = "config"


def _topic(name: str) -> Owner:
    path = ("topics", name, "configs")
    return Owner(
        TOPIC,
        name,
        "KafkaTopicConfig",
        path,
        (("topic", name),),
        (("topic_name", name),),
        f"TOPIC {name}",
    )


def _broker(broker: int) -> Owner:
    path = ("brokers", broker, "configs")
    crn, facts = (("broker", broker),), (("broker_id", broker),)
    return Owner(BROKER, str(broker), "KafkaBrokerConfig", path, crn, facts, f"BROKER {broker}")


def _cluster() -> Owner:
    facts = (("config_type", "BROKER"),)
    return Owner(BROKER, "", "KafkaClusterConfig", ("broker-configs",), (), facts, "CLUSTER", "broker-config")


# Topics


@router.get("/topics/-/configs")
async def list_all_topics_configs(cluster_id: str, request: Request) -> Response:
    """The settings of all topics."""
    shown = await links(request)
    names = await service_of(request).kafka.run(lambda cluster: Admin(cluster).topic_names())
    owners = [_topic(name) for name in names]
    found = await _entries(request, owners, skip_missing=True)
    data = [_shown(shown, owner, one) for owner, entries in found for one in entries]
    return v3(shown.collection("KafkaTopicConfigList", ("topics", "-", "configs"), data))


@router.post("/topics/-/configs:alter")
async def alter_many_topics_configs(cluster_id: str, request: Request) -> Response:
    """Change settings of several topics. What the cluster refuses is listed, the rest is done."""
    await links(request)
    body = await json_object(request, frozenset({"data", "validate_only"}))
    wanted: dict[str, Changes] = {}
    for one in list_of(body, "data", needed=True):
        item = checked_object(one, frozenset({"topic_name", "configs"}), "the changes of a topic")
        wanted[str(text_of(item, "topic_name", needed=True))] = _changes(item, "configs")
    if not wanted:
        return done()
    await _check_known(request, [(_topic(name), changes) for name, changes in wanted.items()])
    validate_only = flag_of(body, "validate_only")
    answers = await service_of(request).kafka.run(
        lambda cluster: Admin(cluster).alter_configs(
            {(TOPIC, name): changes for name, changes in wanted.items()}, validate_only
        )
    )
    failures = []
    for name in wanted:
        problem = answers[TOPIC, name]
        if problem is not None:
            error = errors.for_kafka(problem)
            failures.append({"topic_name": name, "error_code": error.code, "message": error.message})
    return v3({"failures": failures}, 207) if failures else done()


@router.get("/topics/{topic_name}/configs")
async def list_topic_configs(cluster_id: str, topic_name: str, request: Request) -> Response:
    """The settings of a topic."""
    return await _list(request, _topic(topic_name))


@router.get("/topics/{topic_name}/default-configs")
async def list_default_topic_configs(cluster_id: str, topic_name: str, request: Request) -> Response:
    """The settings that a new topic of that name would have."""
    shown = await links(request)
    owner = _topic(topic_name)
    entries = await service_of(request).kafka.run(_defaults)
    data = [_shown(shown, owner, one) for one in entries]
    segments = ("topics", topic_name, "default-configs")
    return v3(shown.collection("KafkaTopicConfigList", segments, data))


def _defaults(cluster: Cluster) -> list[ConfigEntry]:
    """CreateTopics with validate_only returns the settings that the topic would have."""
    wanted = {
        "name": f"default-configs-{uuid.uuid4()}",
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [],
        "configs": [],
    }
    timeout = round(cluster.config.request_timeout * 1000)
    answer = cluster.persistently(
        lambda: cluster.controller().request(
            "create_topics", topics=[wanted], validate_only=True, timeout=timeout
        )
    ).topics[0]
    check(answer.error_code, answer.error_message)
    return [
        ConfigEntry(
            str(entry.name),
            entry.value,
            int(entry.config_source),
            bool(entry.read_only),
            bool(entry.is_sensitive),
            [],
            None,
        )
        for entry in sorted(answer.configs or (), key=lambda entry: str(entry.name))
    ]


@router.post("/topics/{topic_name}/configs:alter")
async def alter_topic_configs(cluster_id: str, topic_name: str, request: Request) -> Response:
    """Change several settings of a topic at once."""
    return await _alter_many(request, _topic(topic_name))


@router.get("/topics/{topic_name}/configs/{name}")
async def get_topic_config(cluster_id: str, topic_name: str, name: str, request: Request) -> Response:
    """A setting of a topic."""
    return await _get(request, _topic(topic_name), name)


@router.put("/topics/{topic_name}/configs/{name}")
async def set_topic_config(cluster_id: str, topic_name: str, name: str, request: Request) -> Response:
    """Change a setting of a topic."""
    return await _set(request, _topic(topic_name), name)


@router.delete("/topics/{topic_name}/configs/{name}")
async def reset_topic_config(cluster_id: str, topic_name: str, name: str, request: Request) -> Response:
    """A setting of a topic back to the default."""
    return await _reset(request, _topic(topic_name), name)


# Brokers


@router.get("/brokers/-/configs")
async def list_all_brokers_configs(cluster_id: str, request: Request) -> Response:
    """The settings of all brokers."""
    shown = await links(request)
    found = await _entries(request, [_broker(one.id) for one in await nodes(request)])
    data = [_shown(shown, owner, one) for owner, entries in found for one in entries]
    return v3(shown.collection("KafkaBrokerConfigList", ("brokers", "-", "configs"), data))


async def _known_broker(request: Request, text: str) -> Owner:
    await links(request)
    return _broker((await node(request, path_number(text))).id)


@router.get("/brokers/{broker_id}/configs")
async def list_broker_configs(cluster_id: str, broker_id: str, request: Request) -> Response:
    """The settings of a broker."""
    return await _list(request, await _known_broker(request, broker_id))


@router.post("/brokers/{broker_id}/configs:alter")
async def alter_broker_configs(cluster_id: str, broker_id: str, request: Request) -> Response:
    """Change several settings of a broker at once."""
    return await _alter_many(request, await _known_broker(request, broker_id))


@router.get("/brokers/{broker_id}/configs/{name}")
async def get_broker_config(cluster_id: str, broker_id: str, name: str, request: Request) -> Response:
    """A setting of a broker."""
    return await _get(request, await _known_broker(request, broker_id), name)


@router.put("/brokers/{broker_id}/configs/{name}")
async def set_broker_config(cluster_id: str, broker_id: str, name: str, request: Request) -> Response:
    """Change a setting of a broker."""
    return await _set(request, await _known_broker(request, broker_id), name)


@router.delete("/brokers/{broker_id}/configs/{name}")
async def reset_broker_config(cluster_id: str, broker_id: str, name: str, request: Request) -> Response:
    """A setting of a broker back to that of the cluster, or to the default."""
    return await _reset(request, await _known_broker(request, broker_id), name)


# The cluster


@router.get("/broker-configs")
async def list_cluster_configs(cluster_id: str, request: Request) -> Response:
    """The settings that were made for all brokers."""
    return await _list(request, _cluster())


@router.post("/broker-configs:alter")
async def alter_cluster_configs(cluster_id: str, request: Request) -> Response:
    """Change several settings for all brokers at once."""
    return await _alter_many(request, _cluster())


@router.get("/broker-configs/{name}")
async def get_cluster_config(cluster_id: str, name: str, request: Request) -> Response:
    """A setting that was made for all brokers."""
    return await _get(request, _cluster(), name)


@router.put("/broker-configs/{name}")
async def set_cluster_config(cluster_id: str, name: str, request: Request) -> Response:
    """Make a setting for all brokers."""
    return await _set(request, _cluster(), name)


@router.delete("/broker-configs/{name}")
async def reset_cluster_config(cluster_id: str, name: str, request: Request) -> Response:
    """A setting for all brokers back to the default."""
    return await _reset(request, _cluster(), name)


# What all of them do


async def _entries(
    request: Request, owners: Sequence[Owner], *, skip_missing: bool = False
) -> list[tuple[Owner, list[ConfigEntry]]]:
    keys = [(owner.type, owner.name) for owner in owners]
    if not keys:
        return []
    answers = await service_of(request).kafka.run(
        lambda cluster: Admin(cluster).describe_configs(keys, synonyms=True)
    )
    found = []
    for owner in owners:
        answer = answers[owner.type, owner.name]
        if isinstance(answer, KafkaError):
            if skip_missing:
                continue
            raise errors.for_kafka(answer)
        if owner.kind == "KafkaClusterConfig":
            answer = [one for one in answer if one.source == CLUSTER_WIDE]
        found.append((owner, sorted(answer)))
    return found


async def _list(request: Request, owner: Owner) -> Response:
    shown = await links(request)
    ((_, entries),) = await _entries(request, [owner])
    data = [_shown(shown, owner, one) for one in entries]
    return v3(shown.collection(f"{owner.kind}List", owner.segments, data))


async def _one(request: Request, owner: Owner, name: str) -> ConfigEntry:
    ((_, entries),) = await _entries(request, [owner])
    found = next((one for one in entries if one.name == name), None)
    if found is None:
        cluster_id = request.path_params["cluster_id"]
        raise errors.not_found(f"Config {name} cannot be found for {owner.subject} in cluster {cluster_id}.")
    return found


async def _get(request: Request, owner: Owner, name: str) -> Response:
    shown = await links(request)
    return v3(_shown(shown, owner, await _one(request, owner, name)))


async def _set(request: Request, owner: Owner, name: str) -> Response:
    await links(request)
    body = await json_object(request, frozenset({"value"}))
    value = text_of(body, "value")
    if owner.kind != "KafkaClusterConfig":
        await _one(request, owner, name)
    await _change(request, owner, [(name, DELETE if value is None else SET, value)])
    return done()


async def _reset(request: Request, owner: Owner, name: str) -> Response:
    await links(request)
    await _one(request, owner, name)
    await _change(request, owner, [(name, DELETE, None)])
    return done()


Changes = list[tuple[str, int, str | None]]


async def _alter_many(request: Request, owner: Owner) -> Response:
    await links(request)
    body = await json_object(request, frozenset({"data", "validate_only"}))
    changes = _changes(body, "data")
    if owner.kind != "KafkaClusterConfig":
        await _check_known(request, [(owner, changes)])
    await _change(request, owner, changes, validate_only=flag_of(body, "validate_only"))
    return done()


def _changes(body: Json, name: str) -> Changes:
    changes: Changes = []
    for one in list_of(body, name, needed=True):
        item = checked_object(one, frozenset({"name", "value", "operation"}), "a change")
        setting, value = text_of(item, "name", needed=True), text_of(item, "value")
        assert setting is not None
        how = (text_of(item, "operation") or "SET").upper()
        if how not in ("SET", "DELETE"):
            raise errors.unprocessable(f"operation: {how} is neither SET nor DELETE")
        changes.append((setting, SET if how == "SET" else DELETE, value if how == "SET" else None))
    if not changes:
        raise errors.unprocessable(f"{name} must not be empty")
    return changes


async def _check_known(request: Request, wanted: Sequence[tuple[Owner, Changes]]) -> None:
    found = await _entries(request, [owner for owner, _ in wanted])
    for (owner, changes), (_, entries) in zip(wanted, found, strict=True):
        known = {one.name for one in entries}
        unknown = next((name for name, _, _ in changes if name not in known), None)
        if unknown is not None:
            raise errors.not_found(
                f"Config {unknown} cannot be found for {owner.subject} in cluster "
                f"{request.path_params['cluster_id']}."
            )


async def _change(
    request: Request,
    owner: Owner,
    changes: Sequence[tuple[str, int, str | None]],
    *,
    validate_only: bool = False,
) -> None:
    def change(cluster: Cluster) -> None:
        answer = Admin(cluster).alter_configs({(owner.type, owner.name): changes}, validate_only)
        problem = answer[owner.type, owner.name]
        if problem is not None:
            raise problem

    await service_of(request).kafka.run(change)


def _shown(shown: Links, owner: Owner, one: ConfigEntry) -> Json:
    return shown.resource(
        owner.kind,
        (*owner.segments, one.name),
        (*owner.crn, (owner.config, one.name)),
        **dict(owner.facts),
        name=one.name,
        value=one.value,
        is_default=one.is_default,
        is_read_only=one.read_only,
        is_sensitive=one.sensitive,
        source=SOURCES.get(one.source, "UNKNOWN"),
        synonyms=[
            {"name": each.name, "value": each.value, "source": SOURCES.get(each.source, "UNKNOWN")}
            for each in one.synonyms
        ],
    )
