"""Topics: the list, one topic's partitions, settings and readers, and what can be changed about them."""

from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.responses import RedirectResponse

from millstream.client import EARLIEST, LATEST, Admin, Cluster, NewTopic
from millstream.client.admin import DELETE, SET, SOURCES, TOPIC, ConfigEntry
from millstream.console import cluster_queries, formatting
from millstream.console.context import Console, flash, get_console, render_page
from millstream.console.message_pages import get_topic
from millstream.console.security import RequestRefused, read_change_form
from millstream.wire.errors import KafkaError
from millstream.wire.topic_partition import TopicPartition

router = APIRouter()
SORTS = ("name", "partitions", "records", "size", "rate")


@router.get("/topics")
async def topic_list(
    request: Request, q: str = "", page: str = "1", sort: str = "name", internal: str = ""
) -> Response:
    console = get_console(request)
    if not console.sampler.rounds:
        await console.sampler.next_round(2.0)
    part = request.headers.get("hx-target") == "rows"
    return render_page(
        request, "topics_rows.html" if part else "topics.html", **_listed(console, q, page, sort, internal)
    )


def _listed(console: Console, q: str, page: str, sort: str, internal: str) -> dict[str, Any]:
    snapshot, rates = console.sampler.snapshot, console.sampler.topic_rates
    needles = q.lower().split()
    names = [
        name
        for name in snapshot.names
        if all(needle in name.lower() for needle in needles)
        and (internal or not (snapshot.topics[name].internal or name.startswith("__")))
    ]
    rate = {name: line.last for name in rates.names() if (line := rates.get(name))}
    keys: dict[str, Any] = {
        "partitions": lambda name: -len(snapshot.topics[name].partitions),
        "records": lambda name: -snapshot.records(name),
        "size": lambda name: -(snapshot.size(name) or 0),
        "rate": lambda name: -rate.get(name, 0.0),
    }
    if sort in keys:
        names.sort(key=keys[sort])
    paging = formatting.Paging(len(names), page)
    rows = []
    for name in names[paging.first : paging.last]:
        topic = snapshot.topics[name]
        parts = topic.partitions.values()
        rows.append(
            {
                "name": name,
                "internal": topic.internal,
                "partitions": len(topic.partitions),
                "replicas": max((len(partition.replicas) for partition in parts), default=0),
                "bad": sum(
                    partition.leader not in snapshot.nodes or len(partition.isr) < len(partition.replicas)
                    for partition in parts
                ),
                "records": snapshot.records(name),
                "size": snapshot.size(name),
                "rate": rate.get(name, 0.0),
            }
        )
    return {
        "rows": rows,
        "paging": paging,
        "q": q,
        "sort": sort if sort in SORTS else "name",
        "internal": internal,
        "hidden": 0
        if internal
        else sum(topic.internal or name.startswith("__") for name, topic in snapshot.topics.items()),
        "link": lambda **change: (
            "/topics?" + formatting.query(**{"q": q, "sort": sort, "internal": internal, **change})
        ),
    }


@router.get("/new-topic")
async def new_topic(request: Request) -> Response:
    return render_page(request, "topic_new.html", given={}, wrong="")


@router.post("/new-topic")
async def create_topic(request: Request) -> Response:
    console = get_console(request)
    form = await read_change_form(request)
    name = form.get("name", "").strip()
    try:
        configs = _assignments(form.get("settings", ""))
        topic = NewTopic(
            name,
            _count(form.get("partitions", ""), "The number of partitions"),
            _count(form.get("replicas", ""), "The number of replicas"),
            configs,
        )
        if not name:
            raise RequestRefused(400, "A topic needs a name.")
        outcome = await console.pool.run(lambda cluster: Admin(cluster).create_topics([topic])[name])
        if isinstance(outcome, KafkaError):
            raise RequestRefused(400, outcome.message)
    except RequestRefused as error:
        return render_page(request, "topic_new.html", error.status, given=form, wrong=error.message)
    await console.sampler.resample()
    flash(request, f"Topic {name} was created.")
    return RedirectResponse(f"/topics/{formatting.path_segment(name)}", 303)


def _count(text: str, what: str) -> int:
    """A number, or -1 for the broker's default."""
    text = text.strip()
    if not text:
        return -1
    if not text.isdecimal() or not 1 <= int(text) <= 100_000:
        raise RequestRefused(400, f"{what} is not a number from 1 to 100000.")
    return int(text)


def _assignments(text: str) -> dict[str, str]:
    found = {}
    for line in text.splitlines():
        if not line.strip():
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise RequestRefused(
                400, f"Settings are written name=value, one per line; this is not: {line.strip()[:80]}"
            )
        found[name.strip()] = value.strip()
    return found


@router.get("/topics/{name}")
async def topic_page(request: Request, name: str) -> Response:
    console = get_console(request)

    def query(cluster: Cluster) -> tuple[Any, dict[Any, int], dict[Any, int]]:
        topic = get_topic(cluster, name)
        return (
            topic,
            cluster_queries.list_offsets(cluster, EARLIEST, [name]),
            cluster_queries.list_offsets(cluster, LATEST, [name]),
        )

    topic, starts, ends = await console.pool.run(query)
    snapshot = console.sampler.snapshot
    rows = [
        {
            "partition": partition,
            "leaderless": bool(snapshot.nodes) and partition.leader not in snapshot.nodes,
            "start": starts.get(TopicPartition(name, partition.index)),
            "end": ends.get(TopicPartition(name, partition.index)),
            "size": snapshot.sizes.get(TopicPartition(name, partition.index)),
        }
        for partition in topic.partitions.values()
    ]
    part = request.headers.get("hx-target") == "partitions"
    return render_page(
        request,
        "topic_partitions.html" if part else "topic.html",
        name=name,
        topic=topic,
        tab="partitions",
        rows=rows,
        records=sum(
            max(0, ends.get(topic_partition, 0) - starts.get(topic_partition, 0)) for topic_partition in ends
        ),
        size=sum(row["size"] for row in rows if row["size"] is not None) if snapshot.sizes else None,
        readers=_readers(console, name),
    )


def _readers(console: Console, name: str) -> list[tuple[str, int]]:
    found = []
    for group, position in list(console.sampler.positions.items()):
        lags = [lag for (topic, _), lag in position.lags.items() if topic == name]
        if lags:
            found.append((group, sum(lags)))
    return sorted(found, key=lambda one: -one[1])[:200]


@router.get("/topics/{name}/settings")
async def topic_settings(request: Request, name: str, q: str = "") -> Response:
    return await _settings_page(request, name, q)


async def _settings_page(
    request: Request, name: str, q: str = "", wrong: str = "", status: int = 200
) -> Response:
    console = get_console(request)

    def query(cluster: Cluster) -> list[ConfigEntry]:
        get_topic(cluster, name)
        found = Admin(cluster).describe_configs([(TOPIC, name)], documentation=True)[TOPIC, name]
        if isinstance(found, KafkaError):
            raise found
        return found

    settings = await console.pool.run(query)
    settings.sort(key=lambda one: (one.source != 1, one.name))
    needle = q.strip().lower()
    return render_page(
        request,
        "topic_settings.html",
        status,
        name=name,
        tab="settings",
        settings=[one for one in settings if needle in one.name.lower()],
        sources={
            number: text.replace("_CONFIG", "").replace("_", " ").lower() for number, text in SOURCES.items()
        },
        q=q,
        wrong=wrong,
    )


@router.post("/topics/{name}/settings")
async def change_setting(request: Request, name: str) -> Response:
    console = get_console(request)
    form = await read_change_form(request)
    key = form.get("key", "").strip()
    change = (key, DELETE, None) if form.get("act") == "reset" else (key, SET, form.get("value", ""))
    outcome = await console.pool.run(
        lambda cluster: Admin(cluster).alter_configs({(TOPIC, name): [change]})[TOPIC, name]
    )
    if outcome is not None:
        return await _settings_page(request, name, wrong=outcome.message, status=400)
    flash(request, f"{key} was " + ("set back to its default." if form.get("act") == "reset" else "changed."))
    return RedirectResponse(f"/topics/{formatting.path_segment(name)}/settings", 303)


@router.get("/topics/{name}/manage")
async def manage(request: Request, name: str) -> Response:
    return await _manage_page(request, name)


async def _manage_page(request: Request, name: str, wrong: str = "", status: int = 200) -> Response:
    topic = await get_console(request).pool.run(lambda cluster: get_topic(cluster, name))
    return render_page(
        request, "topic_manage.html", status, name=name, topic=topic, tab="manage", wrong=wrong
    )


@router.post("/topics/{name}/partitions")
async def add_partitions(request: Request, name: str) -> Response:
    console = get_console(request)
    form = await read_change_form(request)
    try:
        count = _count(form.get("count", ""), "The number of partitions")
        outcome = await console.pool.run(
            lambda cluster: Admin(cluster).create_partitions({name: count})[name]
        )
        if outcome is not None:
            raise RequestRefused(400, outcome.message)
    except RequestRefused as error:
        return await _manage_page(request, name, error.message, 400)
    await console.sampler.resample()
    flash(request, f"Topic {name} has {count} partitions now.")
    return RedirectResponse(f"/topics/{formatting.path_segment(name)}", 303)


def _confirmed(form: dict[str, str], name: str) -> None:
    if form.get("confirm", "").strip() != name:
        raise RequestRefused(400, f"Nothing was done: type the name {name} to confirm.")


@router.post("/topics/{name}/empty")
async def empty_topic(request: Request, name: str) -> Response:
    """Delete all records that are there now."""
    console = get_console(request)
    form = await read_change_form(request)

    def act(cluster: Cluster) -> None:
        topic = get_topic(cluster, name)
        outcome = Admin(cluster).delete_records(
            {TopicPartition(name, partition): -1 for partition in topic.partitions}
        )
        for (_, partition), error in outcome.items():
            if isinstance(error, KafkaError):
                raise RequestRefused(400, f"Partition {partition}: {error.message}")

    try:
        _confirmed(form, name)
        await console.pool.run(act)
    except RequestRefused as error:
        return await _manage_page(request, name, error.message, 400)
    await console.sampler.resample()
    flash(request, f"All records of {name} were deleted.")
    return RedirectResponse(f"/topics/{formatting.path_segment(name)}", 303)


@router.post("/topics/{name}/delete")
async def delete_topic(request: Request, name: str) -> Response:
    console = get_console(request)
    form = await read_change_form(request)
    try:
        _confirmed(form, name)
        outcome = await console.pool.run(lambda cluster: Admin(cluster).delete_topics([name])[name])
        if outcome is not None:
            raise RequestRefused(400, outcome.message)
    except RequestRefused as error:
        return await _manage_page(request, name, error.message, 400)
    await console.sampler.resample()
    flash(request, f"Topic {name} was deleted.")
    return RedirectResponse("/topics", 303)
