"""A page of another site in a real Chromium tries all that browsers let any page try: nothing is registered,
produced, committed, deleted or read.

`test_browser_guard.py` and the services' own tests send what browsers are known to send; here a browser
decides that by itself. The stranger's names lead to this machine, as DNS rebinding has them do.
"""

import http.server
import json
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from millstream.testing import Broker
from tests.console.console_client import RunningConsole
from tests.rest.rest_client import RestConsumer, RunningRest, media_type
from tests.support.running import RunningRegistry
from tests.support.waiting import wait_until

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
from playwright.sync_api import Browser, Page, sync_playwright
from playwright.sync_api import TimeoutError as PlaywrightTimeout

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
FLAGS += ["--host-resolver-rules=MAP *.example 127.0.0.1"]
SCHEMA = json.dumps({"schema": '"string"'})
RECORDS = json.dumps({"records": [{"value": 1}]})
SETTINGS = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1}

# What a page may send without asking first. Answers are opaque to it; what it can read is in `read`.
ATTEMPTS = """
async ([url, method, body, type]) => {
  const options = {method, mode: "no-cors", credentials: "include"};
  if (body !== null) options.body = type === null ? new Blob([body]) : new Blob([body], {type});
  try { return (await fetch(url, options)).type; } catch (error) { return "blocked"; }
}
"""
READ = """
async ([url, options]) => {
  try { return await (await fetch(url, options)).text(); } catch (error) { return "blocked"; }
}
"""
FORM = """
([url, text]) => {
  const form = document.createElement("form");
  form.method = "POST"; form.action = url; form.enctype = "text/plain"; form.target = "sink";
  const field = document.createElement("input");
  field.name = text; field.value = "";
  form.append(field); document.body.append(form); form.submit();
}
"""


class _Pages(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<title>elsewhere</title><iframe name=sink></iframe>")

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@dataclass
class Services:
    """All that speak HTTP, with a topic of three records, a REST consumer and a console without users."""

    broker: Broker
    registry: RunningRegistry
    rest: RunningRest
    console: RunningConsole
    consumer: RestConsumer
    metrics: str
    topic: str = "orders"

    def end_offset(self) -> int:
        return int(self.rest.http.get(f"/topics/{self.topic}/partitions/0/offsets").json()["end_offset"])

    def committed(self) -> list[Any]:
        asked = {"partitions": [{"topic": self.topic, "partition": 0}]}
        return list(self.consumer.get("/offsets", asked).json()["offsets"])


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def site() -> Iterator[int]:
    """The port of the stranger's web server."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Pages)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def services() -> Iterator[Services]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with ExitStack() as stack:
        broker = stack.enter_context(Broker({**SETTINGS, "millstream.metrics.listener": f"127.0.0.1:{port}"}))
        registry = stack.enter_context(RunningRegistry(broker.bootstrap_servers))
        rest = stack.enter_context(RunningRest(broker.bootstrap_servers, registry.url))
        console = stack.enter_context(
            RunningConsole(broker.bootstrap_servers, {"schema.registry.url": registry.url})
        )
        registry.wait_until_leading()
        assert rest.produce("orders", "json", [{"value": number} for number in range(3)]).status_code == 200
        consumer = rest.consumer("readers", **{"auto.commit.enable": "false"})
        consumer.subscribe("orders")
        assert len(consumer.read(3)) == 3
        yield Services(broker, registry, rest, console, consumer, f"http://127.0.0.1:{port}/metrics")
        consumer.delete()


@pytest.fixture
def page(chromium: Browser, site: int) -> Iterator[Page]:
    context = chromium.new_context()
    made = context.new_page()
    made.goto(f"http://evil.example:{site}/")
    yield made
    context.close()


def test_a_page_of_another_site_changes_nothing(page: Page, services: Services) -> None:
    registry, rest, console = services.registry.url, services.rest.url, services.console.url
    seen: list[tuple[str, int]] = []
    page.context.on("response", lambda answer: seen.append((answer.request.method, answer.status)))
    cluster = rest + "/v3/clusters/" + services.rest.http.get("/v3/clusters").json()["data"][0]["cluster_id"]
    json_type = media_type("json")
    attempts: list[tuple[str, str, str | None, str | None]] = [
        (f"{cluster}/topics", "POST", '{"topic_name": "stolen"}', "text/plain"),
        (f"{services.consumer.uri}/offsets", "POST", None, None),
        (f"{services.consumer.uri}/records", "GET", None, None),
        (f"{console}/new-topic", "POST", "name=stolen&partitions=1", "application/x-www-form-urlencoded"),
    ]
    for type_ in (None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        attempts.append((f"{registry}/subjects/stolen/versions", "POST", SCHEMA, type_))
        attempts.append((f"{rest}/topics/{services.topic}", "POST", RECORDS, type_))
    for attempt in attempts:
        assert page.evaluate(ATTEMPTS, list(attempt)) in ("opaque", "blocked"), attempt
    # These are navigations, which a browser lets through more easily.
    for url, text in ((f"{registry}/subjects/stolen/versions", SCHEMA), (f"{console}/new-topic", "name")):
        # A form that is sent while the page is busy with the last answer may get lost: then it is sent again.
        for last in (False, False, True):
            try:
                with page.expect_response(url, timeout=60_000 if last else 10_000):
                    page.evaluate(FORM, [url, text])
                break
            except PlaywrightTimeout:
                if last:
                    raise
    # These ask first, and are told no.
    for url, method, type_ in (
        (f"{registry}/subjects/stolen/versions", "POST", "application/json"),
        (f"{rest}/topics/{services.topic}", "POST", json_type),
        (f"{registry}/subjects/stolen", "DELETE", "application/json"),
        (f"{registry}/config", "PUT", "application/json"),
        (services.consumer.uri, "DELETE", json_type),
    ):
        options: dict[str, Any] = {"method": method, "headers": {"Content-Type": type_}, "body": RECORDS}
        assert page.evaluate(READ, [url, options]) == "blocked"
    assert [answer for answer in seen if answer[1] not in (403, 405, 415, 421)] == []
    assert len(seen) >= len(attempts)
    assert services.registry.http.get("/subjects").json() == []
    assert services.end_offset() == 3
    assert "stolen" not in services.rest.http.get("/topics").json()
    assert services.committed() == []


def test_a_page_of_another_site_reads_nothing(page: Page, services: Services) -> None:
    addresses = [f"{services.registry.url}/subjects", f"{services.rest.url}/topics", services.metrics]
    addresses += [f"{services.console.url}/topics", f"{services.rest.url}/metrics"]
    for url in addresses:
        assert page.evaluate(READ, [url, {}]) == "blocked", url
        # By a name of the stranger's that leads to the service, the page and the service are one site.
        rebound = page.context.new_page()
        answer = rebound.goto(url.replace("127.0.0.1", "rebound.example"))
        assert answer is not None and answer.status == 421, url
        rebound.close()


def test_links_and_own_pages_work(page: Page, services: Services) -> None:
    for url in (f"{services.registry.url}/subjects", f"{services.console.url}/topics"):
        with page.context.expect_page() as opened:
            page.evaluate("url => { window.open(url, '_blank', 'noopener'); }", url)
        opened.value.wait_for_load_state()
        assert opened.value.evaluate("location.href") == url
        assert opened.value.locator("body").inner_text()
        opened.value.close()
    page.goto(f"{services.console.url}/new-topic")
    page.get_by_label("Name").first.fill("made-by-hand")
    page.get_by_role("button", name="Create").first.click()
    wait_until(lambda: "made-by-hand" in services.rest.http.get("/topics").json())


def test_a_page_that_is_allowed(page: Page, site: int, services: Services) -> None:
    """What is refused above is refused for whose page it is: this one may."""
    settings = {
        "access.control.allow.origin": f"http://evil.example:{site}",
        "access.control.allow.methods": "GET,POST",
        "schema.registry.group.id": "another",
        "kafkastore.topic": "_other_schemas",
    }
    with RunningRegistry(services.broker.bootstrap_servers, settings) as registry:
        registry.wait_until_leading()
        headers = {"Content-Type": "application/json"}
        options = {"method": "POST", "headers": headers, "body": SCHEMA}
        url = f"{registry.url}/subjects/given/versions"
        assert json.loads(page.evaluate(READ, [url, options]))["id"] == 1
        assert page.evaluate(READ, [f"{registry.url}/subjects", {}]) == '["given"]'
        assert page.evaluate(READ, [f"{registry.url}/config", {**options, "method": "PUT"}]) == "blocked"
