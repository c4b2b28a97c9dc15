"""/config and /mode, globally and per subject (or context)."""

from typing import Any, cast

from fastapi import APIRouter, Request, Response

from millstream.registry import contexts, errors
from millstream.registry.api.authorization import require, require_alter
from millstream.registry.api.forwarding import at_leader
from millstream.registry.api.responses import answer, flag, json_body, service_of
from millstream.registry.queries import IMPORTING
from millstream.registry.requests import config_request, mode_request
from millstream.wire.acls import Operation

config_router = APIRouter(tags=["Config"])
mode_router = APIRouter(tags=["Modes"])


def _scope(subject: str) -> str | None:
    """The default context by name means the global settings."""
    parsed = contexts.parse(subject)
    return None if not parsed.name and parsed.context == contexts.DEFAULT else parsed.qualified


def _checked(subject: str) -> str | None:
    if not contexts.is_valid(subject, settings=True):
        raise errors.invalid_subject(subject)
    return _scope(subject)


@config_router.get("/config")
async def get_global_config(request: Request) -> Response:
    """The global config."""
    queries = service_of(request).queries
    return answer(queries.config_in_scope(None) if flag(request, "defaultToGlobal") else queries.config(None))


@config_router.put("/config")
async def set_global_config(request: Request) -> Response:
    """Change the global config."""
    return await _set_config(request, None)


@config_router.delete("/config")
async def delete_global_config(request: Request) -> Response:
    """Back to the default."""
    return await _delete_config(request, None)


@config_router.get("/config/{subject:subject}")
async def get_config(subject: str, request: Request) -> Response:
    """A subject's own config; with defaultToGlobal=true what applies to it."""
    queries = service_of(request).queries
    scope = _scope(subject)
    if flag(request, "defaultToGlobal"):
        return answer(queries.config_in_scope(scope))
    found = queries.config(scope)
    if found is None:
        raise errors.no_subject_config(str(scope))
    return answer(found)


@config_router.put("/config/{subject:subject}")
async def set_config(subject: str, request: Request) -> Response:
    """Change a subject's config."""
    return await _set_config(request, _checked(subject))


@config_router.delete("/config/{subject:subject}")
async def delete_config(subject: str, request: Request) -> Response:
    """A subject's config back to the global one."""
    return await _delete_config(request, _scope(subject))


async def _set_config(request: Request, subject: str | None) -> Response:
    commands = service_of(request).commands
    changes = config_request(await json_body(request))
    if subject is not None:
        # A subject stands for another one only by the word of somebody who may write that one.
        aliases = [str(changes[name]) for name in ("alias", "aliasForDeks") if changes.get(name)]
        await require(request, Operation.WRITE, [contexts.within(alias, subject) for alias in aliases])

    def render(result: object) -> Response:
        body = dict(cast(dict[str, Any], result))
        if "compatibilityLevel" in body:
            body = {"compatibility": body.pop("compatibilityLevel"), **body}
        return answer(body)

    return await at_leader(request, lambda: commands.set_config(subject, changes), render)


async def _delete_config(request: Request, subject: str | None) -> Response:
    commands = service_of(request).commands
    return await at_leader(request, lambda: commands.delete_config(subject), answer)


@mode_router.get("/mode")
async def get_global_mode(request: Request) -> Response:
    """The global mode."""
    queries = service_of(request).queries
    return answer({"mode": queries.mode_in_scope(None)})


@mode_router.put("/mode")
async def set_global_mode(request: Request) -> Response:
    """Change the global mode."""
    return await _set_mode(request, None)


@mode_router.delete("/mode")
async def delete_global_mode(request: Request) -> Response:
    """Back to READWRITE."""
    return await _delete_mode(request, None)


@mode_router.get("/mode/{subject:subject}")
async def get_mode(subject: str, request: Request) -> Response:
    """A subject's own mode; with defaultToGlobal=true what applies to it."""
    queries = service_of(request).queries
    scope = _scope(subject)
    mode = queries.mode_in_scope(scope) if flag(request, "defaultToGlobal") else queries.mode(scope)
    if mode is None:
        raise errors.no_subject_mode(str(scope))
    return answer({"mode": mode})


@mode_router.put("/mode/{subject:subject}")
async def set_mode(subject: str, request: Request) -> Response:
    """Change a subject's mode. IMPORT needs an empty subject, or force=true."""
    return await _set_mode(request, _checked(subject))


@mode_router.delete("/mode/{subject:subject}")
async def delete_mode(subject: str, request: Request) -> Response:
    """A subject's mode back to the global one."""
    return await _delete_mode(request, _scope(subject))


async def _set_mode(request: Request, subject: str | None) -> Response:
    commands = service_of(request).commands
    mode = mode_request(await json_body(request))
    if mode in IMPORTING:
        # Whoever brings ids of their own can use up those of the whole context.
        require_alter(request)
    if mode == "FORWARD" and subject is not None and contexts.context_of(subject) != contexts.GLOBAL:
        raise errors.invalid_mode("Forward mode only supported on global level")
    force = flag(request, "force")
    return await at_leader(
        request,
        lambda: commands.set_mode(subject, mode, force=force),
        lambda _: answer({"mode": mode}),
    )


async def _delete_mode(request: Request, subject: str | None) -> Response:
    commands = service_of(request).commands
    recursive = flag(request, "recursive")
    return await at_leader(
        request,
        lambda: commands.delete_mode(subject, recursive=recursive),
        lambda mode: answer({"mode": mode}),
    )
