"""Log levels over REST (KIP-495, KIP-976): of this worker, or, with `scope=cluster`, of all.

Loggers have the names of our modules, `root` is the one above all. A level that was set is remembered with
its time; the others show what they inherit.
"""

from __future__ import annotations

import json
import logging
import time
from typing import Any

from fastapi import APIRouter, Request, Response

from millstream.connect.rest.responses import answer, body_of, call
from millstream.http.errors import HttpError

router = APIRouter()
_LEVELS = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "OFF": logging.CRITICAL + 10,
}
_NAMES = {
    logging.DEBUG: "DEBUG",
    logging.INFO: "INFO",
    logging.WARNING: "WARN",
    logging.ERROR: "ERROR",
    logging.CRITICAL: "FATAL",
    logging.CRITICAL + 10: "OFF",
}
_modified: dict[str, int] = {}


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == "root" else name)


def _known() -> list[str]:
    named = [
        name for name, held in logging.root.manager.loggerDict.items() if isinstance(held, logging.Logger)
    ]
    return ["root", *sorted(named)]


def _level(name: str) -> dict[str, Any]:
    level = _logger(name).getEffectiveLevel()
    return {"level": _NAMES.get(level, str(level)), "last_modified": _modified.get(name)}


def set_level(name: str, level: str) -> list[str]:
    """Returns the loggers that have another level now: this one, and those below it."""
    if level.upper() not in _LEVELS:
        return []
    below = [one for one in _known() if one == name or one.startswith(f"{name}.") or name == "root"]
    affected = sorted(one for one in {*below, name} if _logger(one).level != _LEVELS[level.upper()])
    now = int(time.time() * 1000)
    for one in affected:
        _logger(one).setLevel(_LEVELS[level.upper()])
        _modified[one] = now
    return affected


@router.get("/admin/loggers")
async def loggers() -> Response:
    return answer({name: _level(name) for name in _known()})


@router.get("/admin/loggers/{name}")
async def logger(name: str) -> Response:
    if name not in _known():
        raise HttpError(404, 404, f"Logger {name} not found.")
    return answer(_level(name))


@router.put("/admin/loggers/{name}")
async def change_level(request: Request, name: str) -> Response:
    content = await body_of(request)
    level = content.get("level") if isinstance(content, dict) else None
    if level is None:
        raise HttpError(400, 400, "Desired 'level' parameter was not specified in request.")
    if str(level).upper() not in _LEVELS:
        raise HttpError(404, 404, f"invalid log level '{level}'.")
    if request.query_params.get("scope", "worker").lower() == "cluster":
        await call(request, lambda herder: herder.set_cluster_level(name, str(level).upper()))
        return Response(status_code=204)
    return Response(json.dumps(set_level(name, str(level))), media_type="application/json")
