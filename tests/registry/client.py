"""Requests to a registry, short enough to read in tests."""

import json
from typing import Any

import httpx


class Refused(Exception):
    def __init__(self, response: httpx.Response) -> None:
        super().__init__(response.text)
        self.status = response.status_code
        body = response.json()
        self.code = body["error_code"]
        self.message = body["message"]


class Api:
    """Every call answers with the JSON of a success, or raises Refused."""

    def __init__(self, http: httpx.Client) -> None:
        self.http = http

    def call(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        params = {
            name: str(value).lower() if isinstance(value, bool) else value for name, value in query.items()
        }
        response = self.http.request(method, path, json=body, params=params or None)
        if response.status_code >= 400:
            raise Refused(response)
        return response.json() if response.content else None

    def get(self, path: str, **query: Any) -> Any:
        return self.call("GET", path, **query)

    def post(self, path: str, body: Any, **query: Any) -> Any:
        return self.call("POST", path, body, **query)

    def put(self, path: str, body: Any, **query: Any) -> Any:
        return self.call("PUT", path, body, **query)

    def delete(self, path: str, **query: Any) -> Any:
        return self.call("DELETE", path, **query)

    def register(self, subject: str, schema: Any, schema_type: str = "AVRO", **more: Any) -> int:
        query = {name: more.pop(name) for name in ("normalize", "force") if name in more}
        return int(
            self.post(f"/subjects/{subject}/versions", body(schema, schema_type, **more), **query)["id"]
        )


def body(schema: Any, schema_type: str = "AVRO", **more: Any) -> dict[str, Any]:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    made: dict[str, Any] = {"schema": text, **more}
    if schema_type != "AVRO":
        made["schemaType"] = schema_type
    return made


def record(name: str = "R", *fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def field(name: str, kind: Any = "string", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}
