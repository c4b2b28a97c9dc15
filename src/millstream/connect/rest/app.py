"""The worker's application: its resources, and what surrounds them."""

from __future__ import annotations

import contextlib
import json
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from starlette.types import ASGIApp

from millstream.connect.config.config_def import ConfigDef, ConfigError, given
from millstream.connect.converters.plugins import CONVERTERS, converter_name
from millstream.connect.herder import Herder
from millstream.connect.herding.request_errors import BadRequest, Elsewhere, NotFound
from millstream.connect.plugin_versions import check_version
from millstream.connect.plugins import (
    CONNECTORS,
    class_name_of,
    find_connector,
    load,
    same_connector,
    type_of,
)
from millstream.connect.preview import MAX_RECORDS
from millstream.connect.rest import loggers
from millstream.connect.rest.metrics import collect
from millstream.connect.rest.paths import Paths
from millstream.connect.rest.responses import JSON, answer, body_of, call, forward, known_fields
from millstream.connect.stores.config_state import PAUSED, STARTED, STOPPED
from millstream.connect.transforms.plugins import PREDICATES, TRANSFORMS, find_predicate, find_transform
from millstream.connect.validation import VERSION, config_of, converter_config, definition
from millstream.connect.validation import body as validation_body
from millstream.connect.worker_config import WorkerConfig
from millstream.http.app import make_app as make_http_app
from millstream.http.app import surrounded
from millstream.http.authentication import protected
from millstream.http.cluster_login import ClusterLogin
from millstream.http.errors import HttpError
from millstream.http.metrics import ServiceMetrics
from millstream.http.negotiation import ContentNegotiation, MediaTypes

_BLANK = "".join(map(chr, range(33)))
"""What Java cuts off a name: the space and all below it."""
_TYPES = MediaTypes(JSON, frozenset({JSON}), frozenset({JSON}))

router = APIRouter()


def make_app(herder: Herder, config: WorkerConfig, login: ClusterLogin | None = None) -> ASGIApp:
    app = make_http_app("Millstream Connect", [router, loggers.router], _render_error)
    app.add_exception_handler(Elsewhere, forward)  # type: ignore[arg-type]
    app.state.herder = herder
    app.state.config = config
    paths = Paths(app, [*router.routes, *loggers.router.routes])
    negotiated = ContentNegotiation(paths, lambda _path: _TYPES, max_bytes=config.value("max.request.size"))
    return surrounded(
        negotiated,
        ServiceMetrics("connect", lambda: collect(herder)),
        lambda inner: protected(inner, config, _reads_only, JSON, login),
    )


def _reads_only(method: str, _path: str) -> bool:
    return method in ("GET", "HEAD", "OPTIONS")


def _render_error(_request: Request, error: HttpError) -> Response:
    return answer(error.body(), error.status)


def _settings(content: Any) -> dict[str, str | None]:
    if not isinstance(content, dict):
        raise HttpError(400, 400, "Bad request: a configuration is an object of names and values")
    found: dict[str, str | None] = {}
    for name, value in content.items():
        if isinstance(value, dict | list):
            raise HttpError(400, 400, f"Bad request: the value of {name} is not a text")
        found[name] = value if isinstance(value, str | None) else json.dumps(value)
    return found


def _flag(request: Request, name: str, default: bool = False) -> bool:
    return request.query_params.get(name, str(default)).lower() == "true"


@router.get("/")
async def root(request: Request) -> Response:
    cluster_id = await call(request, lambda herder: herder.cluster_id)
    return answer({"version": VERSION, "commit": "millstream", "kafka_cluster_id": cluster_id})


@router.get("/health")
async def health(request: Request) -> Response:
    herder: Herder = request.app.state.herder
    if not herder.ready.is_set():
        starting = "Worker is still starting up."
        return answer({"status": "starting", "message": starting}, 503)
    if herder.fenced.is_set():
        replaced = "Another worker has this worker's address; this one does nothing any more."
        return answer({"status": "unhealthy", "message": replaced}, 500)
    ready = "Worker has completed startup and is ready to handle requests."
    return answer({"status": "healthy", "message": ready})


@router.get("/connectors")
async def list_connectors(request: Request) -> Response:
    wanted = request.query_params.getlist("expand")
    if not wanted:
        return answer(await call(request, lambda herder: herder.names()))

    def expanded(herder: Herder) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in herder.names():
            one: dict[str, Any] = {}
            try:
                if "status" in wanted:
                    one["status"] = herder.status(name)
                if "info" in wanted:
                    one["info"] = herder.info(name)
            except NotFound:
                continue
            found[name] = one
        return found

    return answer(await call(request, expanded))


@router.post("/connectors")
async def create(request: Request) -> Response:
    content = await body_of(request)
    if not isinstance(content, dict) or not isinstance(content.get("config", {}), dict):
        raise HttpError(400, 400, "Bad request: expected {name, config}")
    known_fields(content, ("name", "config", "initial_state"))
    settings = _settings(content.get("config") or {})
    name = str(content.get("name") or "").strip(_BLANK)
    _check_name(name, settings)
    initial = content.get("initial_state")
    if not isinstance(initial, str | None):
        raise HttpError(400, 400, f"Unknown initial state {initial}")
    made = await call(request, lambda herder: herder.create(name, settings, initial))
    response = answer(made, 201)
    response.headers["location"] = _location(name)
    return response


def _location(name: str) -> str:
    return f"/connectors/{quote(name, safe='')}"


def _check_name(name: str, settings: dict[str, str | None]) -> None:
    inside = settings.get("name")
    if inside is not None and inside != name:
        raise HttpError(
            400,
            400,
            f"Connector name configuration ({inside}) doesn't match connector name in the URL ({name})",
        )


@router.get("/connectors/{name}")
async def info(request: Request, name: str) -> Response:
    return answer(await call(request, lambda herder: herder.info(name)))


@router.get("/connectors/{name}/config")
async def get_config(request: Request, name: str) -> Response:
    return answer(await call(request, lambda herder: herder.settings(name)))


@router.put("/connectors/{name}/config")
async def put_config(request: Request, name: str) -> Response:
    settings = _settings(await body_of(request))
    _check_name(name, settings)
    created, made = await call(request, lambda herder: herder.put_config(name, settings))
    response = answer(made, 201 if created else 200)
    if created:
        response.headers["location"] = _location(name)
    return response


@router.patch("/connectors/{name}/config")
async def patch_config(request: Request, name: str) -> Response:
    changes = _settings(await body_of(request))
    return answer(await call(request, lambda herder: herder.patch_config(name, changes)))


@router.delete("/connectors/{name}")
async def delete(request: Request, name: str) -> Response:
    await call(request, lambda herder: herder.delete(name))
    return Response(status_code=204)


@router.get("/connectors/{name}/status")
async def status(request: Request, name: str) -> Response:
    return answer(await call(request, lambda herder: herder.status(name)))


@router.get("/connectors/{name}/tasks")
async def tasks(request: Request, name: str) -> Response:
    return answer(await call(request, lambda herder: herder.task_configs(name)))


@router.get("/connectors/{name}/tasks/{number}/status")
async def task_status(request: Request, name: str, number: int) -> Response:
    return answer(await call(request, lambda herder: herder.task_status(name, number)))


@router.post("/connectors/{name}/tasks/{number}/restart")
async def restart_task(request: Request, name: str, number: int) -> Response:
    await call(request, lambda herder: herder.restart_task(name, number))
    return Response(status_code=204)


@router.post("/connectors/{name}/restart")
async def restart(request: Request, name: str) -> Response:
    include_tasks, only_failed = _flag(request, "includeTasks"), _flag(request, "onlyFailed")
    planned = await call(
        request, lambda herder: herder.restart(name, include_tasks=include_tasks, only_failed=only_failed)
    )
    if not include_tasks and not only_failed:
        return Response(status_code=204)
    return answer(planned, 202)


@router.put("/connectors/{name}/pause")
async def pause(request: Request, name: str) -> Response:
    await call(request, lambda herder: herder.set_target_state(name, PAUSED))
    return Response(status_code=202)


@router.put("/connectors/{name}/resume")
async def resume(request: Request, name: str) -> Response:
    await call(request, lambda herder: herder.set_target_state(name, STARTED))
    return Response(status_code=202)


@router.put("/connectors/{name}/stop")
async def stop(request: Request, name: str) -> Response:
    await call(request, lambda herder: herder.set_target_state(name, STOPPED))
    return Response(status_code=204)


@router.get("/connectors/{name}/topics")
async def topics(request: Request, name: str) -> Response:
    return answer({name: {"topics": await call(request, lambda herder: herder.topics(name))}})


@router.put("/connectors/{name}/topics/reset")
async def reset_topics(request: Request, name: str) -> Response:
    await call(request, lambda herder: herder.reset_topics(name))
    return Response(status_code=202)


@router.get("/connectors/{name}/offsets")
async def offsets(request: Request, name: str) -> Response:
    return answer({"offsets": await call(request, lambda herder: herder.offsets(name))})


@router.patch("/connectors/{name}/offsets")
async def alter_offsets(request: Request, name: str) -> Response:
    content = await body_of(request)
    entries = content.get("offsets") if isinstance(content, dict) else None
    if not isinstance(entries, list) or not entries or not all(isinstance(one, dict) for one in entries):
        raise HttpError(400, 400, "Partitions / offsets need to be provided for an alter offsets request")
    for entry in entries:
        known_fields(entry, ("partition", "offset"))
    message = await call(request, lambda herder: herder.alter_offsets(name, entries))
    return answer({"message": message})


@router.delete("/connectors/{name}/offsets")
async def reset_offsets(request: Request, name: str) -> Response:
    message = await call(request, lambda herder: herder.alter_offsets(name, None))
    return answer({"message": message})


@router.post("/connectors/{name}/redrive")
async def redrive(request: Request, name: str) -> Response:
    content = await body_of(request) if await request.body() else {}
    where = content.get("where", "") if isinstance(content, dict) else None
    if not isinstance(where, str):
        raise HttpError(400, 400, 'The body has to be an object, {"where": "an expression"}')
    return answer(await call(request, lambda herder: herder.redrive(name, where)), 202)


@router.get("/connectors/{name}/redrive")
async def redrive_status(request: Request, name: str) -> Response:
    return answer(await call(request, lambda herder: herder.redrive_status(name)))


@router.delete("/connectors/{name}/redrive")
async def end_redrive(request: Request, name: str) -> Response:
    await call(request, lambda herder: herder.end_redrive(name))
    return Response(status_code=204)


@router.get("/connectors/{name}/metrics")
async def metrics(request: Request, name: str) -> Response:
    return answer(await call(request, lambda herder: herder.metrics(name)))


@router.put("/connector-plugins/{plugin}/config/preview")
async def preview(request: Request, plugin: str) -> Response:
    settings = given(_settings(await body_of(request)))
    text = request.query_params.get("records", "5")
    if not text.isdigit() or not 0 < int(text) <= MAX_RECORDS:
        raise HttpError(400, 400, f"records has to be a number from 1 to {MAX_RECORDS}")
    settings.setdefault("connector.class", plugin)
    settings.setdefault("name", "preview")
    return answer(await call(request, lambda herder: herder.preview(settings, int(text))))


@router.get("/connector-plugins")
async def plugins(request: Request) -> Response:
    found = [
        {"class": full, "type": type_of(load(full)), "version": load(full).version}
        for full in sorted(CONNECTORS)
    ]
    if not _flag(request, "connectorsOnly", True):
        for kind, held in (
            ("converter", CONVERTERS),
            ("predicate", PREDICATES),
            ("transformation", TRANSFORMS),
        ):
            found += [{"class": full, "type": kind, "version": VERSION} for full in sorted(held)]
    return answer(found)


@router.get("/connector-plugins/{plugin}/config")
async def plugin_config(request: Request, plugin: str) -> Response:
    wanted = request.query_params.get("version")

    def act(herder: Herder) -> list[Any]:
        full, version, config = _plugin(plugin, herder.plugin_path)
        check_version(full, wanted, version)
        return [definition(key) for key in config.keys.values()]

    return answer(await call(request, act))


def _plugin(name: str, plugin_path: tuple[str, ...]) -> tuple[str, str, ConfigDef]:
    """The class name, version and settings of a plugin of any kind."""
    converter = converter_name(name)
    if converter is not None:
        return converter, VERSION, converter_config(converter)
    for look_up in (find_transform, find_predicate):
        with contextlib.suppress(ConfigError):
            return name, VERSION, look_up(name).config
    try:
        connector = find_connector(name, plugin_path)
    except ConfigError:
        raise NotFound(f"Unknown plugin {name}.") from None
    return class_name_of(connector), connector.version, config_of(connector)


@router.put("/connector-plugins/{plugin}/config/validate")
async def validate_config(request: Request, plugin: str) -> Response:
    settings = _settings(await body_of(request))

    def act(herder: Herder) -> dict[str, Any]:
        inside = settings.get("connector.class")
        if inside is None:
            herder.class_of(settings)  # says that there is none, as Kafka does
        elif not same_connector(inside, plugin, herder.plugin_path):
            raise BadRequest(f"Included connector type {inside} does not match request type {plugin}")
        connector = find_connector(plugin, herder.plugin_path)
        return validation_body(connector, herder.validated(connector, settings))

    return answer(await call(request, act))
