"""A REST proxy in a child process, and requests to it."""

from collections.abc import Mapping
from typing import Any

import httpx

from tests.support.running import RunningService
from tests.support.waiting import wait_until

V2 = "application/vnd.kafka.v2+json"


def media_type(form: str) -> str:
    return f"application/vnd.kafka.{form}.v2+json"


class RunningRest(RunningService):
    command = "rest"

    def __init__(
        self,
        bootstrap: str,
        registry: str = "http://127.0.0.1:1",
        settings: Mapping[str, object] | None = None,
        verify: Any = True,
    ) -> None:
        addresses = {"bootstrap.servers": bootstrap, "schema.registry.url": registry}
        super().__init__({**addresses, **(settings or {})}, verify)

    def produce(self, topic: str, form: str, records: list[Any], **more: Any) -> httpx.Response:
        body = {"records": records, **more}
        return self.http.post(f"/topics/{topic}", json=body, headers={"Content-Type": media_type(form)})

    def consumer(self, group: str, form: str = "json", **options: Any) -> "RestConsumer":
        body = {"format": form, "auto.offset.reset": "earliest", **options}
        answer = self.http.post(f"/consumers/{group}", json=body, headers={"Content-Type": V2})
        assert answer.status_code == 200, answer.text
        return RestConsumer(self, answer.json()["base_uri"], form)


class RestConsumer:
    def __init__(self, rest: RunningRest, uri: str, form: str) -> None:
        self.uri = uri
        self.form = form
        self._http = rest.http

    def post(self, path: str, body: Any = None) -> httpx.Response:
        if body is None:
            return self._http.post(f"{self.uri}{path}", headers={"Content-Type": V2})
        return self._http.post(f"{self.uri}{path}", json=body, headers={"Content-Type": V2})

    def get(self, path: str, body: Any = None) -> httpx.Response:
        return self._http.request("GET", f"{self.uri}{path}", json=body, headers={"Accept": V2})

    def subscribe(self, *topics: str) -> None:
        assert self.post("/subscription", {"topics": list(topics)}).status_code == 204

    def records(self, accept: str | None = None, **query: Any) -> httpx.Response:
        headers = {"Accept": accept or media_type(self.form)}
        return self._http.get(f"{self.uri}/records", params=query, headers=headers)

    def read(self, count: int, **query: Any) -> list[dict[str, Any]]:
        """So many records, in as many requests as it takes."""
        found: list[dict[str, Any]] = []

        def enough() -> bool:
            answer = self.records(**query)
            assert answer.status_code == 200, answer.text
            found.extend(answer.json())
            return len(found) >= count

        wait_until(enough, lambda: f"{len(found)} of {count} records")
        return found

    def delete(self) -> httpx.Response:
        return self._http.delete(self.uri, headers={"Content-Type": V2})
