"""The first page: how the cluster is, and charts that move."""

from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request, Response

from millstream.console import formatting
from millstream.console.context import Console, get_console, render_page
from millstream.console.pages.server_sent_events import event, event_stream
from millstream.console.sampling import Snapshot
from millstream.console.time_series import Series

router = APIRouter()
BUSIEST = 6


@router.get("/")
async def overview(request: Request) -> Response:
    console = get_console(request)
    if not console.sampler.rounds:
        await console.sampler.next_round(0.2)
    part = request.headers.get("hx-target") == "facts"
    return render_page(request, "overview_facts.html" if part else "overview.html", **_facts(console))


def _facts(console: Console) -> dict[str, Any]:
    snapshot = console.sampler.snapshot
    leads: dict[int, int] = {}
    holds: dict[int, int] = {}
    for topic in snapshot.topics.values():
        for partition in topic.partitions.values():
            leads[partition.leader] = leads.get(partition.leader, 0) + 1
            for replica in partition.replicas:
                holds[replica] = holds.get(replica, 0) + 1
    rates = [
        (name, line.last)
        for name in console.sampler.topic_rates.names()
        if (line := console.sampler.topic_rates.get(name))
    ]
    busiest = sorted((one for one in rates if one[1] > 0), key=lambda one: -one[1])[:BUSIEST]
    behind = sorted(
        ((name, found.lag) for name, found in list(console.sampler.positions.items()) if found.lag > 0),
        key=lambda one: -one[1],
    )[:BUSIEST]
    return {
        "brokers": [
            (node, leads.get(node.id, 0), holds.get(node.id, 0), snapshot.disks.get(node.id))
            for node in sorted(snapshot.nodes.values(), key=lambda node: node.id)
        ],
        "busiest": busiest,
        "behind": behind,
        "numbers": numbers(console),
    }


def numbers(console: Console) -> dict[str, str]:
    """The figures at the top, as text; the stream sends them again when they change."""
    snapshot: Snapshot = console.sampler.snapshot
    used = sum(disk.used for disk in snapshot.disks.values()) if snapshot.disks else None
    return {
        "brokers": formatting.number(len(snapshot.nodes)),
        "topics": formatting.number(len(snapshot.topics)),
        "partitions": formatting.number(snapshot.partitions),
        "groups": formatting.number(len(snapshot.groups)),
        "under": formatting.number(snapshot.under_replicated),
        "offline": formatting.number(snapshot.offline),
        "rate": formatting.number(console.sampler.rate.last),
        "lag": formatting.number(console.sampler.lag.last),
        "bytes": formatting.size(used),
    }


@router.get("/live")
async def live(request: Request, topic: str = "", group: str = "") -> Response:
    """All points there are, then each new one. Without a name, the cluster's; else one topic's or one
    group's."""
    console = get_console(request)

    def lines() -> dict[str, Series | None]:
        sampler = console.sampler
        if topic:
            return {"topic": sampler.topic_rates.get(topic)}
        if group:
            sampler.watch_group(group)
            return {"group": sampler.group_lags.get(group)}
        return {"rate": sampler.rate, "bytes": sampler.bytes, "lag": sampler.lag}

    async def events() -> AsyncIterator[str]:
        sent: dict[str, float] = {}
        while True:
            update: dict[str, Any] = {}
            for name, line in lines().items():
                if line is None or not line.times:
                    continue
                times, values = line.points()
                since = sent.get(name, 0.0)
                fresh = [(time, value) for time, value in zip(times, values, strict=False) if time > since]
                if fresh:
                    update[name] = [
                        [round(time, 1) for time, _ in fresh],
                        [round(value, 2) for _, value in fresh],
                    ]
                    sent[name] = fresh[-1][0]
            update["problem"] = console.sampler.error or ""
            if not topic and not group:
                update["numbers"] = numbers(console)
            yield event("points", update)
            await console.sampler.next_round(30.0)

    return event_stream(request, events())
