"""What goes wrong is said on the page, and the console stays alive."""

import os
import re
import socket
from collections.abc import Callable

from millstream.client import Admin, Cluster
from millstream.testing import Broker
from millstream.wire.records import Record
from tests.support.waiting import wait_until

from .console_client import Client, RunningConsole
from .test_pages import offsets_on

PAGES = (
    "/",
    "/topics",
    "/topics/x",
    "/topics/x/messages",
    "/groups",
    "/groups/view?name=x",
    "/pipelines",
    "/clients",
    "/services",
)


def unused_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


def test_cluster_that_is_not_there() -> None:
    with RunningConsole(f"127.0.0.1:{unused_port()}") as running:
        for path in PAGES:
            page = running.http.get(path)
            assert "does not answer" in page.text, path
            assert page.status_code in (200, 502)
        health = running.http.get("/health")
        assert health.status_code == 503
        assert health.json()["cluster"]["error"]
        assert running.http.form("/new-topic", name="x").status_code == 502
        assert "millstream_console_up_to_date 0" in running.http.get("/metrics").text
        assert "Schema Registry" in running.http.get("/schemas").text


def test_cluster_that_goes_and_comes_back() -> None:
    with Broker() as broker, RunningConsole(broker.bootstrap_servers) as running:
        wait_until(lambda: running.http.get("/health").status_code == 200)
        broker.stop()
        wait_until(lambda: running.http.get("/health").status_code == 503)
        page = running.http.get("/").text
        assert "What is shown was true" in page
        assert broker.bootstrap_servers in page
        broker.start()
        wait_until(lambda: running.http.get("/health").status_code == 200)


def test_registry_that_is_not_there(
    bootstrap: str, new_topic: Callable[..., str], write: Callable[..., int]
) -> None:
    name = new_topic()
    write(name, [b"\0\0\0\0\x07body"])
    with RunningConsole(bootstrap, {"schema.registry.url": f"http://127.0.0.1:{unused_port()}"}) as running:
        page = running.http.get("/schemas")
        assert page.status_code == 502
        assert "The registry does not answer" in page.text
        messages = running.http.get(f"/topics/{name}/messages")
        assert messages.status_code == 200
        assert "Not decoded: the registry" in messages.text
        assert running.http.get("/health").json()["registry"]["status"] == "down"
        assert "away" in running.http.get("/services").text


def test_topic_that_is_deleted_while_it_is_open(
    browser: Client, cluster: Cluster, new_topic: Callable[..., str], write: Callable[..., int]
) -> None:
    name = new_topic()
    write(name, ["x"])
    assert browser.get(f"/topics/{name}").status_code == 200
    with browser.stream("GET", f"/topics/{name}/tail") as answer:
        lines = answer.iter_lines()
        assert next(line for line in lines if line == "event: started")
        assert Admin(cluster).delete_topics([name])[name] is None
        assert next(line for line in lines if line == "event: problem")
        assert "The live tail ended" in next(line for line in lines if line.startswith("data: "))
    for path in ("", "/messages", "/settings", "/search", "/messages/0/0"):
        page = browser.get(f"/topics/{name}{path}")
        assert page.status_code == 404, path
        assert "Not there" in page.text
    part = browser.get(f"/topics/{name}", headers={"hx-request": "true", "hx-target": "partitions"})
    assert part.status_code == 404
    assert "<html" not in part.text


def test_one_megabyte_and_junk(
    browser: Client, new_topic: Callable[..., str], write: Callable[..., int]
) -> None:
    name = new_topic(
        configs={"max.message.bytes": "3000000", "message.timestamp.after.max.ms": "9223372036854775807"}
    )
    large = b'{"x":"' + b"a" * 1_000_000 + b'"}'
    junk = bytes(range(256)) * 3
    script = b"<script>alert(1)</script>"
    write(name, [large])
    write(
        name,
        [
            Record(0, 1_700_000_000_000, junk, junk, (("<b>", junk), ("null", None))),
            Record(0, -1, script, script, ((script.decode(), script),)),
            Record(0, 9_000_000_000_000_000, b"", b""),
            Record(0, 0, b"\xed\xa0\x80", b'{"a":"\\ud800 \\u0000"}'),
            Record(0, 0, None, b"[" * 5000),
            Record(0, 0, None, b"\0\0\0\0\x01"),
        ],
    )
    page = browser.get(f"/topics/{name}/messages")
    assert page.status_code == 200
    assert len(page.content) < 200_000
    assert "<script>alert" not in page.text
    assert "&lt;script&gt;alert" in page.text
    one = browser.get(f"/topics/{name}/messages/0/0")
    assert len(one.content) < 200_000
    assert "Download all of it" in one.text
    assert browser.get(f"/topics/{name}/messages/0/0/raw").content == large
    assert browser.get(f"/topics/{name}/messages/0/1/raw", params={"part": "key"}).content == junk
    for offset in range(7):
        assert browser.get(f"/topics/{name}/messages/0/{offset}").status_code == 200
    assert browser.get(f"/topics/{name}/messages/0/7").status_code == 404
    assert browser.get(f"/topics/{name}/messages/9/0").status_code == 404
    assert len(browser.get(f"/topics/{name}/export").text.splitlines()) == 7
    assert browser.get(f"/topics/{name}/export?form=csv").status_code == 200


def test_a_page_of_large_messages(
    browser: Client, new_topic: Callable[..., str], write: Callable[..., int]
) -> None:
    """More than is read for one page: there are fewer on it, the newest ones, and the rest is on the next
    ones."""
    name = new_topic(configs={"max.message.bytes": "3000000"})
    for i in range(30):
        write(name, [b"%d " % i + b"x" * 1_000_000])
    seen: list[tuple[int, int]] = []
    url = f"/topics/{name}/messages"
    while url:
        page = browser.get(url).text
        seen += offsets_on(page)
        older = re.search(r'href="([^"]+)">Older<', page)
        url = older[1].replace("&amp;", "&") if older else ""
    assert seen == [(0, i) for i in range(29, -1, -1)]
    assert offsets_on(browser.get(f"/topics/{name}/messages?seek=start").text)[:10] == [
        (0, i) for i in range(10)
    ]


def test_bad_expressions(browser: Client, new_topic: Callable[..., str]) -> None:
    name = new_topic()
    for expression in (
        "value.",
        "value ==",
        "__import__('os')",
        "value matches '('",
        "(" * 5000,
        "a" * 100_000,
    ):
        page = browser.form(f"/topics/{name}/search", expression=expression)
        assert page.status_code == 400, expression[:50]
        assert "The expression makes no sense" in page.text
    assert browser.form(f"/topics/{name}/search").status_code == 400
    assert browser.form(f"/topics/{name}/search", text="x").status_code == 400
    assert browser.form(f"/topics/{name}/search", text="x", in_key=1, since="soonish").status_code == 400
    assert browser.form("/topics/no-such-topic/search", text="x", in_key=1).status_code == 404


def test_odd_addresses(browser: Client) -> None:
    assert browser.get("/topics/" + "x" * 5000).status_code in (404, 502)
    assert browser.get("/topics/%00%ff/messages").status_code in (404, 502)
    assert browser.get("/topics/..%2f..%2fetc").status_code == 404
    assert browser.get("/static/../main.py").status_code == 404
    assert browser.get("/static/%2e%2e/main.py").status_code == 404
    assert browser.get("/groups/view", params={"name": "never seen"}).status_code == 404
    assert browser.get("/groups/view").status_code in (400, 422)
    assert browser.get("/topics/x/messages/a/b").status_code in (404, 422)
    assert browser.get("/topics", params={"page": "-1", "sort": os.urandom(20).hex()}).status_code == 200
    assert browser.get("/health").status_code == 200
