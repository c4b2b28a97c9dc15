"""A small search server: the bulk API, indices and versions, as OpenSearch and Elasticsearch have them."""

from __future__ import annotations

import json
from typing import Any

from tests.support.http_server import Answer, Request, ScriptedServer


class SearchServer(ScriptedServer):
    """`documents` by index and id. `busy` answers that many operations with 429."""

    def __init__(self) -> None:
        self.documents: dict[str, dict[str, Any]] = {}
        self.mappings: dict[str, Any] = {}
        self.busy = 0
        self.bulks: list[int] = []
        self._versions: dict[tuple[str, str], int] = {}
        super().__init__(self._take)

    def _take(self, request: Request) -> Answer:
        index = request.path.strip("/")
        if request.method == "HEAD":
            return (200 if index in self.documents else 404), b""
        if request.method == "PUT":
            self.documents[index] = {}
            self.mappings[index] = json.loads(request.body).get("mappings")
            return 200, b"{}"
        assert request.path == "/_bulk" and request.headers["Content-Type"] == "application/x-ndjson"
        assert request.body.endswith(b"\n")
        lines = [json.loads(line) for line in request.body.splitlines()]
        items = []
        while lines:
            ((action, where),) = lines.pop(0).items()
            body = None if action == "delete" else lines.pop(0)
            items.append({action: {"_index": where["_index"]} | self._apply(action, where, body)})
        self.bulks.append(len(items))
        return 200, json.dumps({"errors": True, "items": items}).encode()

    def _apply(self, action: str, where: dict[str, Any], body: Any) -> dict[str, Any]:
        if self.busy:
            self.busy -= 1
            return {"status": 429, "error": {"type": "es_rejected_execution_exception", "reason": "busy"}}
        if body is not None and "poison" in body:
            return {"status": 400, "error": {"type": "mapper_parsing_exception", "reason": "poison"}}
        held = self.documents.setdefault(where["_index"], {})
        name = where["_id"]
        version = where.get("version")
        if version is not None:
            if version <= self._versions.get((where["_index"], name), -1):
                return {"status": 409, "error": {"type": "version_conflict_engine_exception", "reason": ""}}
            self._versions[where["_index"], name] = version
        if action == "create" and name in held:
            return {"status": 409, "error": {"type": "version_conflict_engine_exception", "reason": ""}}
        if action == "delete":
            return {"status": 200 if held.pop(name, None) is not None else 404}
        if action == "update":
            held[name] = held.get(name, {}) | body["doc"]
        else:
            held[name] = body
        return {"status": 200}
