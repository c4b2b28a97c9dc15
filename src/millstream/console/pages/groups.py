"""Consumer groups: the list, one group's members and lag, and new offsets for it, previewed first."""

import json
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.responses import RedirectResponse

from millstream.client import EARLIEST, LATEST, Cluster
from millstream.client.groups import GroupDescription, Groups
from millstream.console import cluster_queries, formatting
from millstream.console.context import Console, console_of, draw, tell
from millstream.console.resets import MODES, planned
from millstream.console.security import Refused, changing
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.topic_partition import TopicPartition

router = APIRouter()


@router.get("/groups")
async def group_list(
    request: Request, q: str = "", page: str = "1", sort: str = "name", state: str = ""
) -> Response:
    """From the sampler's list; what the page shows is asked for again, fifty groups with a few requests."""
    console = console_of(request)
    if not console.sampler.rounds:
        await console.sampler.next_round(2.0)
    listed, positions = console.sampler.snapshot.groups, console.sampler.positions
    needles = q.lower().split()
    matching = [
        group
        for group in listed
        if all(needle in group.group_id.lower() for needle in needles) and (not state or group.state == state)
    ]
    if sort == "lag":
        matching.sort(key=lambda g: -positions[g.group_id].lag if g.group_id in positions else 1)
    paging = formatting.Paging(len(matching), page)
    visible = matching[paging.first : paging.last]
    names = [group.group_id for group in visible]

    def ask(
        cluster: Cluster,
    ) -> tuple[dict[str, cluster_queries.GroupSummary], dict[str, dict[TopicPartition, int]]]:
        return cluster_queries.summaries(cluster, names), cluster_queries.committed(cluster, names)

    summaries: dict[str, cluster_queries.GroupSummary] = {}
    committed: dict[str, dict[TopicPartition, int]] = {}
    if names:
        try:
            summaries, committed = await console.pool.run(ask)
        except KafkaError:
            committed = {name: dict(positions[name].committed) for name in names if name in positions}
    ends = console.sampler.snapshot.ends
    rows = []
    for group in visible:
        offsets = committed.get(group.group_id)
        summary = summaries.get(group.group_id)
        rows.append(
            {
                "name": group.group_id,
                "state": summary.state if summary else group.state,
                "type": group.type if group.type != "Unknown" or not summary else summary.kind,
                "members": summary.members if summary else None,
                "topics": len({topic for topic, _ in offsets}) if offsets is not None else None,
                "lag": sum(cluster_queries.lags(offsets, ends).values()) if offsets is not None else None,
            }
        )
    part = request.headers.get("hx-target") == "rows"
    return draw(
        request,
        "groups_rows.html" if part else "groups.html",
        rows=rows,
        paging=paging,
        q=q,
        sort=sort,
        state=state,
        states=sorted({group.state for group in listed}),
        link=lambda **change: (
            "/groups?" + formatting.query(**{"q": q, "sort": sort, "state": state, **change})
        ),
    )


class _Details:
    """One group as its page shows it."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        found = Groups(cluster).describe([name])[name]
        if isinstance(found, KafkaError):
            raise found
        self.group: GroupDescription = found
        self.committed = cluster_queries.committed(cluster, [name]).get(name, {})
        if found.state == "Dead" and not self.committed:
            raise KafkaError(ErrorCode.group_id_not_found, f"there is no group {name}")
        owners: dict[TopicPartition, str] = {}
        for member in found.members:
            for place in member.assignment:
                owners[place] = member.client_id
        places = sorted({*self.committed, *owners})
        topics = {topic for topic, _ in places}
        if topics:
            cluster.refresh(topics)
        ends = cluster_queries.offsets(cluster, LATEST, topics)
        starts = cluster_queries.offsets(cluster, EARLIEST, topics)
        self.rows: list[dict[str, Any]] = []
        for place in places:
            offset, end = self.committed.get(place), ends.get(place)
            lag = max(0, end - offset) if offset is not None and end is not None else None
            expired = offset is not None and place in starts and offset < starts[place]
            self.rows.append(
                {
                    "topic": place[0],
                    "partition": place[1],
                    "committed": offset,
                    "end": end,
                    "lag": lag,
                    "owner": owners.get(place, ""),
                    "expired": expired,
                }
            )
        self.lag = sum(row["lag"] or 0 for row in self.rows)
        self.topics = sorted(topics)


@router.get("/groups/view")
async def group_page(request: Request, name: str) -> Response:
    return await _group_page(request, name)


async def _group_page(request: Request, name: str, status: int = 200, **more: Any) -> Response:
    console = console_of(request)
    console.sampler.watch(name)
    details = await console.pool.run(lambda cluster: _Details(cluster, name))
    part = request.headers.get("hx-target") == "lags"
    fill: dict[str, Any] = {"wrong": "", "given": {}, "plan": None, **more}
    return draw(
        request,
        "group_lags.html" if part else "group.html",
        status,
        name=name,
        details=details,
        modes=MODES,
        resettable=details.group.state in ("Empty", "Dead"),
        **fill,
    )


@router.post("/groups/reset")
async def preview(request: Request) -> Response:
    """What a reset would do. Nothing is changed, but only who may change things is told."""
    console = console_of(request)
    form = await changing(request)
    name = form.get("name", "")
    try:
        plan = await console.pool.run(lambda cluster: planned(cluster, name, form))
    except Refused as error:
        return await _group_page(request, name, 400, wrong=error.message, given=form)
    packed = json.dumps([[topic, partition, new] for topic, partition, _, new in plan])
    return await _group_page(request, name, given=form, plan=plan, packed=packed)


@router.post("/groups/reset/apply")
async def apply(request: Request) -> Response:
    """Commit exactly what was previewed."""
    console = console_of(request)
    form = await changing(request)
    name = form.get("name", "")
    offsets = _unpacked(form.get("plan", ""))

    def act(cluster: Cluster) -> None:
        for (topic, partition), error in Groups(cluster).commit(name, offsets).items():
            if error is not None:
                raise Refused(400, f"{topic}, partition {partition}: {error.message}")

    try:
        await console.pool.run(act)
    except (Refused, KafkaError) as error:
        return await _group_page(request, name, 400, wrong=f"Not reset: {error.message}")
    tell(request, f"Offsets of {len(offsets)} partitions were set.")
    await console.sampler.changed()
    return RedirectResponse("/groups/view?" + formatting.query(name=name), 303)


def _unpacked(text: str) -> dict[TopicPartition, int]:
    try:
        found = {
            TopicPartition(str(topic), int(partition)): int(offset)
            for topic, partition, offset in json.loads(text)
        }
    except (ValueError, TypeError):
        raise Refused(400, "The plan cannot be read. Preview it again.") from None
    if any(offset < 0 for offset in found.values()):
        raise Refused(400, "The plan cannot be read. Preview it again.")
    return found


@router.post("/groups/delete")
async def delete(request: Request) -> Response:
    console = console_of(request)
    form = await changing(request)
    name = form.get("name", "")
    if form.get("confirm", "").strip() != name:
        return await _group_page(
            request, name, 400, wrong=f"Nothing was done: type the name {name} to confirm."
        )
    outcome = await console.pool.run(lambda cluster: Groups(cluster).delete([name])[name])
    if outcome is not None:
        return await _group_page(request, name, 400, wrong=outcome.message)
    await _listing_again(console)
    tell(request, f"Group {name} was deleted.")
    return RedirectResponse("/groups", 303)


async def _listing_again(console: Console) -> None:
    console.sampler.list_groups_again()
    await console.sampler.changed()
