"""Consumer groups: the list, one group's members and lag, and new offsets for it, previewed first."""

import json
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.responses import RedirectResponse

from millstream.client import EARLIEST, LATEST, Cluster
from millstream.client.groups import GroupDescription, Groups
from millstream.console import cluster_queries, formatting
from millstream.console.context import Console, flash, get_console, render_page
from millstream.console.offset_resets import MODES, plan_reset
from millstream.console.security import RequestRefused, read_change_form
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.topic_partition import TopicPartition

router = APIRouter()


@router.get("/groups")
async def group_list(
    request: Request, q: str = "", page: str = "1", sort: str = "name", state: str = ""
) -> Response:
    """From the sampler's list; what the page shows is asked for again, fifty groups with a few requests."""
    console = get_console(request)
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
        matching.sort(key=lambda group: -positions[group.group_id].lag if group.group_id in positions else 1)
    paging = formatting.Paging(len(matching), page)
    visible = matching[paging.first : paging.last]
    names = [group.group_id for group in visible]

    def query(
        cluster: Cluster,
    ) -> tuple[dict[str, cluster_queries.GroupSummary], dict[str, dict[TopicPartition, int]]]:
        return cluster_queries.group_summaries(cluster, names), cluster_queries.committed_offsets(
            cluster, names
        )

    summaries: dict[str, cluster_queries.GroupSummary] = {}
    committed: dict[str, dict[TopicPartition, int]] = {}
    if names:
        try:
            summaries, committed = await console.pool.run(query)
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
                "type": group.type if group.type != "Unknown" or not summary else summary.type,
                "members": summary.members if summary else None,
                "topics": len({topic for topic, _ in offsets}) if offsets is not None else None,
                "lag": sum(cluster_queries.lags(offsets, ends).values()) if offsets is not None else None,
            }
        )
    part = request.headers.get("hx-target") == "rows"
    return render_page(
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
        self.committed = cluster_queries.committed_offsets(cluster, [name]).get(name, {})
        if found.state == "Dead" and not self.committed:
            raise KafkaError(ErrorCode.group_id_not_found, f"there is no group {name}")
        owners: dict[TopicPartition, str] = {}
        for member in found.members:
            for topic_partition in member.assignment:
                owners[topic_partition] = member.client_id
        partitions = sorted({*self.committed, *owners})
        topics = {topic for topic, _ in partitions}
        if topics:
            cluster.refresh(topics)
        ends = cluster_queries.list_offsets(cluster, LATEST, topics)
        starts = cluster_queries.list_offsets(cluster, EARLIEST, topics)
        self.rows: list[dict[str, Any]] = []
        for topic_partition in partitions:
            offset, end = self.committed.get(topic_partition), ends.get(topic_partition)
            lag = max(0, end - offset) if offset is not None and end is not None else None
            expired = offset is not None and topic_partition in starts and offset < starts[topic_partition]
            self.rows.append(
                {
                    "topic": topic_partition[0],
                    "partition": topic_partition[1],
                    "committed": offset,
                    "end": end,
                    "lag": lag,
                    "owner": owners.get(topic_partition, ""),
                    "expired": expired,
                }
            )
        self.lag = sum(row["lag"] or 0 for row in self.rows)
        self.topics = sorted(topics)


@router.get("/groups/view")
async def group_page(request: Request, name: str) -> Response:
    return await _group_page(request, name)


async def _group_page(request: Request, name: str, status: int = 200, **more: Any) -> Response:
    console = get_console(request)
    console.sampler.watch_group(name)
    details = await console.pool.run(lambda cluster: _Details(cluster, name))
    part = request.headers.get("hx-target") == "lags"
    fill: dict[str, Any] = {"wrong": "", "given": {}, "plan": None, **more}
    return render_page(
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
    """What a reset would do. Nothing is changed yet, but only who may change things sees it."""
    console = get_console(request)
    form = await read_change_form(request)
    name = form.get("name", "")
    try:
        plan = await console.pool.run(lambda cluster: plan_reset(cluster, name, form))
    except RequestRefused as error:
        return await _group_page(request, name, 400, wrong=error.message, given=form)
    packed = json.dumps([[topic, partition, new] for topic, partition, _, new in plan])
    return await _group_page(request, name, given=form, plan=plan, packed=packed)


@router.post("/groups/reset/apply")
async def apply(request: Request) -> Response:
    """Commit exactly what was previewed."""
    console = get_console(request)
    form = await read_change_form(request)
    name = form.get("name", "")
    offsets = _parse_plan(form.get("plan", ""))

    def act(cluster: Cluster) -> None:
        for (topic, partition), error in Groups(cluster).commit(name, offsets).items():
            if error is not None:
                raise RequestRefused(400, f"{topic}, partition {partition}: {error.message}")

    try:
        await console.pool.run(act)
    except (RequestRefused, KafkaError) as error:
        return await _group_page(request, name, 400, wrong=f"Not reset: {error.message}")
    flash(request, f"Offsets of {formatting.counted(len(offsets), 'partition')} were set.")
    await console.sampler.resample()
    return RedirectResponse("/groups/view?" + formatting.query(name=name), 303)


def _parse_plan(text: str) -> dict[TopicPartition, int]:
    try:
        found = {
            TopicPartition(str(topic), int(partition)): int(offset)
            for topic, partition, offset in json.loads(text)
        }
    except (ValueError, TypeError):
        raise RequestRefused(400, "The plan cannot be read. Preview it again.") from None
    if any(offset < 0 for offset in found.values()):
        raise RequestRefused(400, "The plan cannot be read. Preview it again.")
    return found


@router.post("/groups/delete")
async def delete(request: Request) -> Response:
    console = get_console(request)
    form = await read_change_form(request)
    name = form.get("name", "")
    if form.get("confirm", "").strip() != name:
        return await _group_page(
            request, name, 400, wrong=f"Nothing was done: type the name {name} to confirm."
        )
    outcome = await console.pool.run(lambda cluster: Groups(cluster).delete([name])[name])
    if outcome is not None:
        return await _group_page(request, name, 400, wrong=outcome.message)
    await _relist_groups(console)
    flash(request, f"Group {name} was deleted.")
    return RedirectResponse("/groups", 303)


async def _relist_groups(console: Console) -> None:
    console.sampler.relist_groups()
    await console.sampler.resample()
