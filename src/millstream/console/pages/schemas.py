"""Schemas: subjects, versions, their differences, compatibility, and new versions."""

import difflib
import json
from typing import Any, NamedTuple

from fastapi import APIRouter, Request, Response
from starlette.responses import RedirectResponse

from millstream.console import formatting
from millstream.console.context import flash, get_console, render_page
from millstream.console.registry import LEVELS, NO_SUBJECT, NO_VERSION, Registry
from millstream.console.security import RequestRefused, read_change_form, read_form
from millstream.serdes import RegistryRefused

router = APIRouter()
SCHEMA_TYPES = ("AVRO", "JSON", "PROTOBUF")


class DiffRow(NamedTuple):
    change: str  # same, changed, added, removed, gap
    left_number: int | None
    left: str
    right_number: int | None
    right: str


def pretty(text: str, schema_type: str) -> str:
    if schema_type == "PROTOBUF":
        return text
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def side_by_side(left: str, right: str, around: int = 3) -> list[DiffRow]:
    """Two texts beside each other; long runs of equal lines are left out."""
    left_lines, right_lines = left.splitlines(), right.splitlines()
    rows: list[DiffRow] = []
    for tag, left_start, left_end, right_start, right_end in difflib.SequenceMatcher(
        None, left_lines, right_lines, autojunk=False
    ).get_opcodes():
        if tag == "equal":
            same = [
                DiffRow(
                    "same",
                    left_start + line + 1,
                    left_lines[left_start + line],
                    right_start + line + 1,
                    right_lines[right_start + line],
                )
                for line in range(left_end - left_start)
            ]
            head, tail = (
                (0 if left_start == 0 and right_start == 0 else around),
                (0 if left_end == len(left_lines) and right_end == len(right_lines) else around),
            )
            if len(same) > head + tail + 3:
                last = same[len(same) - tail :] if tail else []
                same = [
                    *same[:head],
                    DiffRow("gap", None, f"{len(same) - head - tail} equal lines", None, ""),
                    *last,
                ]
            rows += same
            continue
        for line in range(max(left_end - left_start, right_end - right_start)):
            old = left_lines[left_start + line] if left_start + line < left_end else None
            new = right_lines[right_start + line] if right_start + line < right_end else None
            change = (
                "changed" if old is not None and new is not None else "added" if old is None else "removed"
            )
            rows.append(
                DiffRow(
                    change,
                    left_start + line + 1 if old is not None else None,
                    old or "",
                    right_start + line + 1 if new is not None else None,
                    new or "",
                )
            )
    return rows


def _registry(request: Request) -> Registry:
    found = get_console(request).registry
    if found is None:
        raise RequestRefused(404, "The console knows no Schema Registry. Set schema.registry.url.")
    return found


@router.get("/schemas")
async def subject_list(request: Request, q: str = "", page: str = "1") -> Response:
    console, registry = get_console(request), _registry(request)
    subjects = await console.pool.run_blocking(registry.subjects)
    needles = q.lower().split()
    matching = sorted(one for one in subjects if all(needle in one.lower() for needle in needles))
    paging = formatting.Paging(len(matching), page)
    visible = matching[paging.first : paging.last]

    def describe() -> list[dict[str, Any]]:
        found = []
        for name in visible:
            try:
                latest = registry.version(name)
            except RegistryRefused:
                continue  # deleted a moment ago
            found.append(
                {
                    "name": name,
                    "version": latest["version"],
                    "id": latest["id"],
                    "type": latest.get("schemaType", "AVRO"),
                }
            )
        return found

    part = request.headers.get("hx-target") == "rows"
    return render_page(
        request,
        "schemas_rows.html" if part else "schemas.html",
        rows=await console.pool.run_blocking(describe),
        paging=paging,
        q=q,
        level=await console.pool.run_blocking(registry.default_compatibility_level) if not part else "",
        link=lambda **change: "/schemas?" + formatting.query(**{"q": q, **change}),
    )


@router.get("/schemas/subject")
async def subject_page(request: Request, name: str, version: str = "", compare: str = "") -> Response:
    return await _subject_page(request, name, version, compare)


async def _subject_page(
    request: Request, name: str, version: str = "", compare: str = "", status: int = 200, **more: Any
) -> Response:
    console, registry = get_console(request), _registry(request)

    def ask() -> dict[str, Any]:
        versions = registry.versions(name)
        chosen = int(version) if version.isdecimal() and int(version) in versions else versions[-1]
        shown = registry.version(name, chosen)
        schema_type = shown.get("schemaType", "AVRO")
        found: dict[str, Any] = {
            "versions": versions,
            "chosen": chosen,
            "id": shown["id"],
            "kind": schema_type,
            "text": pretty(shown["schema"], schema_type),
            "references": shown.get("references") or [],
            "level": registry.compatibility_level(name),
            "diff": None,
            "other": None,
        }
        if compare.isdecimal() and int(compare) in versions:
            other = registry.version(name, int(compare))
            found["other"] = int(compare)
            found["diff"] = side_by_side(
                pretty(other["schema"], other.get("schemaType", "AVRO")), found["text"]
            )
        return found

    details = await console.pool.run_blocking(ask)
    fill: dict[str, Any] = {"verdict": None, "wrong": "", "given": details["text"], **more}
    return render_page(request, "schema.html", status, name=name, levels=LEVELS, **details, **fill)


@router.get("/schemas/new")
async def new_subject(request: Request, name: str = "") -> Response:
    _registry(request)
    given = {"name": name, "kind": "AVRO", "schema": ""}
    return render_page(request, "schema_new.html", given=given, kinds=SCHEMA_TYPES, wrong="", verdict=None)


def _words_of(error: RegistryRefused) -> str:
    return str(error)


@router.post("/schemas/check")
async def check(request: Request) -> Response:
    """Whether a schema could be the next version. Changes nothing."""
    form = await read_form(request)
    console, registry = get_console(request), _registry(request)
    name, text, schema_type = form.get("name", "").strip(), form.get("schema", ""), form.get("kind", "AVRO")
    verdict: tuple[bool, list[str]] | None = None
    wrong = ""
    try:
        verdict = await console.pool.run_blocking(
            lambda: registry.check_compatibility(name, text, schema_type)
        )
    except RegistryRefused as error:
        if error.code in (NO_SUBJECT, NO_VERSION):
            verdict = (True, ["The subject is new: nothing speaks against its first schema."])
        else:
            wrong = _words_of(error)
    return render_page(request, "schema_verdict.html", verdict=verdict, wrong=wrong)


@router.post("/schemas/register")
async def register(request: Request) -> Response:
    form = await read_change_form(request)
    console, registry = get_console(request), _registry(request)
    name, text, schema_type = form.get("name", "").strip(), form.get("schema", ""), form.get("kind", "AVRO")
    try:
        if not name:
            raise RequestRefused(
                400,
                "A subject needs a name; for a topic's values it is the topic's name and -value.",
            )
        schema_id = await console.pool.run_blocking(
            lambda: registry.register_version(name, text, schema_type)
        )
    except (RegistryRefused, RequestRefused) as error:
        given = {"name": name, "kind": schema_type, "schema": text}
        return render_page(
            request, "schema_new.html", 400, given=given, kinds=SCHEMA_TYPES, wrong=str(error), verdict=None
        )
    flash(request, f"Registered under id {schema_id}.")
    return RedirectResponse("/schemas/subject?" + formatting.query(name=name), 303)


@router.post("/schemas/level")
async def set_level(request: Request) -> Response:
    form = await read_change_form(request)
    console, registry = get_console(request), _registry(request)
    name, level = form.get("name", ""), form.get("level", "")
    if level and level not in LEVELS:
        raise RequestRefused(400, "There is no such compatibility level.")
    try:
        await console.pool.run_blocking(lambda: registry.set_compatibility_level(name, level))
    except RegistryRefused as error:
        if not (error.status == 404 and not level):  # it had none of its own
            raise
    flash(request, f"Compatibility is {level or 'the default'} now.")
    return RedirectResponse("/schemas/subject?" + formatting.query(name=name), 303)


@router.post("/schemas/delete")
async def delete(request: Request) -> Response:
    form = await read_change_form(request)
    console, registry = get_console(request), _registry(request)
    name, version = form.get("name", ""), form.get("version", "")
    if form.get("confirm", "").strip() != name:
        return await _subject_page(
            request, name, status=400, wrong=f"Nothing was done: type the name {name} to confirm."
        )
    number = int(version) if version.isdecimal() else None
    await console.pool.run_blocking(lambda: registry.delete(name, number))
    flash(request, f"Version {number} of {name} was deleted." if number else f"Subject {name} was deleted.")
    return RedirectResponse("/schemas", 303)
