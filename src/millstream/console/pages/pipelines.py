"""Pipelines: running Spark queries with their rates, state, lag and last error, from what they report."""

import time

from fastapi import APIRouter, Request, Response
from starlette.responses import RedirectResponse

from millstream.console.context import flash, get_console, render_page
from millstream.console.security import read_change_form
from millstream.spark.runner.status_records import ENDED
from millstream.wire.errors import ErrorCode, KafkaError

router = APIRouter()


@router.get("/pipelines")
async def pipelines(request: Request) -> Response:
    console = get_console(request)
    try:
        reports = await console.pool.run(console.pipelines.newest)
    except KafkaError as error:
        if error.code is not ErrorCode.unknown_topic_or_partition:
            raise
        reports = None
    now = round(time.time() * 1000)
    rows = (
        None if reports is None else [(one, one.shown_state(now), one.state not in ENDED) for one in reports]
    )
    part = request.headers.get("hx-target") == "reports"
    template = "pipelines_rows.html" if part else "pipelines.html"
    return render_page(request, template, rows=rows, topic=console.pipelines.topic)


@router.post("/pipelines/stop")
async def stop(request: Request) -> Response:
    console = get_console(request)
    form = await read_change_form(request)
    name, run = form.get("name", ""), form.get("run", "")
    await console.pool.run(lambda cluster: console.pipelines.stop(cluster, name, run))
    flash(request, f"{name} was asked to stop.")
    return RedirectResponse("/pipelines", 303)
