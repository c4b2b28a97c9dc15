"""Every page by plain HTTP: what it shows, and what its forms do to the cluster."""

import html
import json
import re
import time
from collections.abc import Callable

from millstream.client import Admin, Cluster
from millstream.client.admin import TOPIC
from millstream.client.groups import Groups
from millstream.serdes import Encoder, SchemaRegistry
from millstream.serdes.frame import with_id
from millstream.serdes.json_text import check_json
from millstream.spark.runner.status_records import QueryStatus, Status, status_key, write_status
from millstream.wire.records import Record
from tests.support.logical_types import LOGICAL, PAYMENT
from tests.support.running import RunningRegistry
from tests.support.secured_services import address_of
from tests.support.waiting import wait_until

from .console_client import Client, RunningConsole

ORDER = (
    '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"},{"name":"who","type":"string"}]}'
)
ORDER_2 = (
    '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"},{"name":"who","type":"string"},'
    '{"name":"note","type":"string","default":""}]}'
)


def test_overview_shows_the_brokers(browser: Client, bootstrap: str) -> None:
    address = address_of(bootstrap)
    wait_until(lambda: address in browser.get("/").text)
    page = browser.get("/").text
    assert "Brokers" in page
    assert 'data-live="/live"' in page
    part = browser.get("/", headers={"hx-request": "true", "hx-target": "facts"}).text
    assert address in part
    assert "<html" not in part


def test_live_numbers_come_as_events(browser: Client) -> None:
    with browser.stream("GET", "/live") as answer:
        updates = (json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: "))
        update = next(updates)
        assert set(update["numbers"]) >= {"brokers", "topics", "rate", "lag"}
        assert update["problem"] == ""
        # A rate needs two samples, which take as long as they take.
        assert any("rate" in again for again in updates)


def test_topic_list_searches_sorts_and_pages(browser: Client, new_topic: Callable[..., str]) -> None:
    prefix = f"paged-{time.time_ns()}"
    names = [new_topic(name=f"{prefix}-{i:02d}") for i in range(3)]
    wait_until(lambda: names[2] in browser.get("/topics", params={"q": prefix}).text)
    found = browser.get("/topics", params={"q": prefix.upper()}).text
    assert found.index(names[0]) < found.index(names[1]) < found.index(names[2])
    assert "1 to 3 of 3" in found
    rows = browser.get("/topics", params={"q": prefix, "sort": "size"}, headers={"hx-target": "rows"}).text
    assert "<html" not in rows
    assert names[1] in rows
    assert "No topic has" in browser.get("/topics", params={"q": "nothing-like-this"}).text
    assert browser.get("/topics", params={"page": "999999999999"}).status_code == 200


def test_topic_is_created_altered_and_deleted(browser: Client, cluster: Cluster) -> None:
    name = f"made-{time.time_ns()}"
    page = browser.form("/new-topic", name=name, partitions=2, replicas=1, settings="retention.ms=60000\n")
    assert page.status_code == 200
    assert f"Topic {name} was created." in page.text
    settings = browser.get(f"/topics/{name}/settings").text
    assert "this topic" in settings
    assert "60000" in settings

    page = browser.form(f"/topics/{name}/settings", key="retention.ms", value="70000", act="set")
    assert "retention.ms was changed." in page.text
    wrong = browser.form(f"/topics/{name}/settings", key="retention.ms", value="soon", act="set")
    assert wrong.status_code == 400
    assert 'role="alert"' in wrong.text
    browser.form(f"/topics/{name}/settings", key="retention.ms", act="reset")
    found = Admin(cluster).describe_configs([(TOPIC, name)])[TOPIC, name]
    assert not isinstance(found, Exception)
    assert next(one for one in found if one.name == "retention.ms").source != 1

    assert "has 3 partitions now" in browser.form(f"/topics/{name}/partitions", count=3).text
    assert browser.form(f"/topics/{name}/partitions", count=1).status_code == 400

    refused = browser.form(f"/topics/{name}/delete", confirm="something else")
    assert refused.status_code == 400
    assert "type the name" in refused.text
    assert f"Topic {name} was deleted." in browser.form(f"/topics/{name}/delete", confirm=name).text
    assert browser.get(f"/topics/{name}").status_code == 404


def test_topic_that_cannot_be_created(browser: Client) -> None:
    page = browser.form("/new-topic", name="no spaces please", partitions=1)
    assert page.status_code == 400
    assert 'role="alert"' in page.text
    assert browser.form("/new-topic", name="x", partitions="many").status_code == 400
    assert browser.form("/new-topic", name="x", settings="no equals sign").status_code == 400


def test_topic_is_emptied(browser: Client, new_topic: Callable[..., str], write: Callable[..., int]) -> None:
    name = new_topic(partitions=2)
    write(name, ["one", "two"])
    assert "were deleted" in browser.form(f"/topics/{name}/empty", confirm=name).text
    assert "No messages here" in browser.get(f"/topics/{name}/messages").text


def offsets_on(page: str) -> list[tuple[int, int]]:
    return [(int(p), int(o)) for p, o in re.findall(r'data-at="(\d+)-(\d+)"', page)]


def test_messages_page_both_ways_without_gaps(
    browser: Client, new_topic: Callable[..., str], write: Callable[..., int]
) -> None:
    name = new_topic(partitions=3)
    for i in range(90):
        write(
            name, [Record(0, 1_700_000_000_000 + i, f"k{i}".encode(), f"value {i}".encode())], partition=i % 3
        )
    everything = {(p, o) for p in range(3) for o in range(30)}

    seen: list[tuple[int, int]] = []
    url = f"/topics/{name}/messages?limit=25"
    for _ in range(10):
        page = browser.get(url).text
        seen += offsets_on(page)
        older = re.search(r'href="([^"]+)">Older<', page)
        if older is None:
            break
        url = older[1].replace("&amp;", "&")
    assert len(seen) == len(set(seen)) == 90
    assert set(seen) == everything
    assert seen[0] == (2, 29)

    forward: list[tuple[int, int]] = []
    url = f"/topics/{name}/messages?seek=start&limit=25"
    for _ in range(10):
        page = browser.get(url).text
        forward += offsets_on(page)
        newer = re.search(r'href="([^"]+)">Newer<', page)
        if newer is None:
            break
        url = newer[1].replace("&amp;", "&")
    assert forward == list(reversed(seen))


def test_messages_by_offset_time_and_partition(
    browser: Client, new_topic: Callable[..., str], write: Callable[..., int]
) -> None:
    name = new_topic(partitions=2)
    for p in range(2):
        write(
            name,
            [Record(0, 1_700_000_000_000 + i * 60_000, None, f"p{p} v{i}".encode()) for i in range(10)],
            p,
        )
    messages = f"/topics/{name}/messages"
    assert offsets_on(browser.get(messages, params={"seek": "offset", "at": "8"}).text) == [
        (0, 8),
        (1, 8),
        (0, 9),
        (1, 9),
    ]
    found = offsets_on(
        browser.get(messages, params={"seek": "time", "at": "2023-11-14T22:20Z", "partition": "1"}).text
    )
    assert found == [(1, o) for o in range(7, 10)]
    assert offsets_on(browser.get(messages, params={"partition": "1", "limit": "2"}).text)[:2] == [
        (1, 9),
        (1, 8),
    ]
    for bad in ({"seek": "offset", "at": "x"}, {"seek": "time", "at": "yesterday-ish"}):
        page = browser.get(messages, params=bad)
        assert page.status_code == 400
        assert 'role="alert"' in page.text
    assert browser.get(messages, params={"partition": "77"}).status_code == 404


def test_values_are_decoded_by_their_schema(
    browser: Client, registry: RunningRegistry, new_topic: Callable[..., str], write: Callable[..., int]
) -> None:
    name = new_topic()
    encoded = Encoder(SchemaRegistry(registry.url), ORDER).encode(name, {"id": 7, "who": "Ada"})
    write(name, [encoded, '{"plain":{"json":true}}', "just text", None])
    page = browser.get(f"/topics/{name}/messages").text
    assert "&#34;who&#34;: &#34;Ada&#34;" in page
    assert re.search(r'class="badge">avro<', page)
    assert re.search(r'class="badge">schema \d+<', page)
    assert re.search(r'class="badge">json<', page)
    assert "just text" in page
    assert "tombstone" in page


def test_export(browser: Client, new_topic: Callable[..., str], write: Callable[..., int]) -> None:
    name = new_topic(partitions=2)
    for p in range(2):
        write(name, [json.dumps({"n": i}) for i in range(60)], partition=p, key=b"=1+1")
    lines = browser.get(f"/topics/{name}/export", params={"seek": "start", "limit": "1000"}).text.splitlines()
    assert len(lines) == 120
    assert json.loads(lines[0])["value"] == {"n": 0}
    answer = browser.get(f"/topics/{name}/export", params={"form": "csv", "limit": "5"})
    assert "attachment" in answer.headers["content-disposition"]
    rows = answer.text.splitlines()
    assert len(rows) == 6
    assert "'=1+1" in rows[1]


def test_produce_and_send_again(
    browser: Client, registry: RunningRegistry, new_topic: Callable[..., str]
) -> None:
    name, other = new_topic(partitions=2), new_topic()
    page = browser.form(
        f"/topics/{name}/produce", key="k", value="hello", headers="a: b\nc: d", partition=1, form="text"
    )
    assert "Written to partition 1 at offset 0." in page.text
    assert "hello" in page.text
    wrong = browser.form(f"/topics/{name}/produce", value="{", form="json")
    assert wrong.status_code == 400
    assert "not JSON" in wrong.text
    assert browser.form(f"/topics/{name}/produce", value="x", headers="nocolon").status_code == 400
    again = browser.form(f"/topics/{name}/messages/1/0/resend", target=other)
    assert f"Sent again: {other}, partition 0, offset 0." in again.text
    assert browser.get(f"/topics/{other}/messages/0/0/raw").content == b"hello"
    copied = browser.get(f"/topics/{name}/produce", params={"copy": "1-0"}).text
    assert "a: b\nc: d" in copied
    assert browser.form(f"/topics/{name}/messages/1/0/resend", target="no-such-topic-here").status_code == 404

    SchemaRegistry(registry.url).register(f"{name}-value", ORDER)
    page = browser.form(
        f"/topics/{name}/produce", value='{"id": 9, "who": "Bob"}', form="schema", partition=0
    )
    assert "Written to partition 0 at offset 0." in page.text
    page = browser.form(f"/topics/{name}/produce", value='{"id": "nine"}', form="schema")
    assert page.status_code == 400


def test_a_topic_may_be_named_new(browser: Client, new_topic: Callable[..., str]) -> None:
    new_topic(partitions=3, name="new")
    page = browser.get("/topics/new").text
    assert "/topics/new/messages" in page
    assert 'action="/new-topic"' not in page


def edited_and_sent(browser: Client, name: str) -> bytes:
    """What arrives when the first message of a topic is copied into the form and sent without a change."""
    page = browser.get(f"/topics/{name}/produce", params={"copy": "0-0"}).text
    value = re.search(r'<textarea name="value"[^>]*>(.*?)</textarea>', page, re.DOTALL)
    form = re.search(r'<option value="(\w+)" selected>', page)
    assert value is not None
    assert form is not None
    sent = browser.form(f"/topics/{name}/produce", value=html.unescape(value[1]), form=form[1], partition=0)
    assert "at offset 1." in sent.text, sent.text
    return browser.get(f"/topics/{name}/messages/0/1/raw").content


def test_edit_and_send_loses_nothing(
    browser: Client, registry: RunningRegistry, new_topic: Callable[..., str], write: Callable[..., int]
) -> None:
    """Logical types, bytes, unions, NaN; JSON with a schema and without: numbers as they are written."""
    client = SchemaRegistry(registry.url)
    name = new_topic()
    encoded = Encoder(client, LOGICAL).encode(name, PAYMENT)
    assert encoded is not None
    write(name, [encoded])
    page = browser.get(f"/topics/{name}/messages/0/0").text
    assert "2026-11-16T12:30:15.123" in page  # people see a date
    assert edited_and_sent(browser, name) == encoded
    assert "NaN" in check_json(browser.get(f"/topics/{name}/export").text.splitlines()[0])

    name = new_topic()
    schema_id = client.register(f"{name}-value", '{"type": "object"}', "JSON")
    body = b'{"price":1.10,"big":1e400,"long":12345678901234567890.12345678901234567890}'
    write(name, [with_id(schema_id, body)])
    page = html.unescape(browser.get(f"/topics/{name}/messages/0/0").text)
    assert '"price": 1.10' in page
    assert '"big": 1e400' in page
    assert edited_and_sent(browser, name) == with_id(schema_id, body)

    name = new_topic()
    stored = b'{"a":1.10,"a":1e400}'
    write(name, [stored])
    assert edited_and_sent(browser, name) == stored
    assert '"value": {"a": 1.10, "a": 1e400}' in browser.get(f"/topics/{name}/export").text
    assert '{""a"": 1.10, ""a"": 1e400}' in browser.get(f"/topics/{name}/export?form=csv").text


def events_of(browser: Client, url: str) -> list[tuple[str, object]]:
    found = []
    with browser.stream("GET", url) as answer:
        name = ""
        for line in answer.iter_lines():
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                found.append((name, json.loads(line[6:])))
                if name == "end":
                    break
    return found


def search(browser: Client, topic: str, **fields: object) -> tuple[list[tuple[int, int]], str]:
    """What a search finds, and the last word about it."""
    started = browser.form(f"/topics/{topic}/search", **fields)
    assert started.status_code == 200, started.text
    events = re.search(r'data-search-events="([^"]+)"', started.text)
    if events is not None:
        events_of(browser, events[1])
    page = browser.get(str(started.url)).text
    return offsets_on(page), page


def test_search_by_text_and_expression(
    browser: Client, new_topic: Callable[..., str], write: Callable[..., int]
) -> None:
    name = new_topic(partitions=2)
    for p in range(2):
        values = [
            Record(
                0,
                1_700_000_000_000 + i,
                f"key-{i}".encode(),
                json.dumps({"n": i, "status": "CRITICAL" if i == 57 else "ok"}).encode(),
                (("source", b"needle" if i == 30 else b"hay"),),
            )
            for i in range(100)
        ]
        write(name, list(values), partition=p)
    found, page = search(browser, name, text="CRITICAL", in_value=1)
    assert sorted(found) == [(0, 57), (1, 57)]
    assert "2 found." in page
    assert "200 records" in page.replace("\u202f", " ")
    assert search(browser, name, text="critical", in_value=1)[0] == []
    assert len(search(browser, name, text="critical", in_value=1, any_case=1)[0]) == 2
    assert sorted(search(browser, name, text="needle", in_header=1)[0]) == [(0, 30), (1, 30)]
    assert search(browser, name, text="needle", in_key=1)[0] == []
    assert sorted(search(browser, name, text="key-99", in_key=1, partition=1)[0]) == [(1, 99)]
    found, _ = search(browser, name, expression='value.n > 97 and headers.source == "hay"')
    assert sorted(found) == [(0, 98), (0, 99), (1, 98), (1, 99)]
    found, _ = search(browser, name, text="key-9", in_key=1, expression="value.n < 10")
    assert sorted(found) == [(0, 9), (1, 9)]
    found, _ = search(browser, name, expression="value.n >= 0", until="2023-11-14T22:13:20.005Z")
    assert len(found) == 10


def test_search_stops_at_its_limit_and_when_cancelled(
    bootstrap: str, new_topic: Callable[..., str], write: Callable[..., int]
) -> None:
    name = new_topic()
    write(name, ["the same"] * 500)
    with RunningConsole(bootstrap, {"search.max.hits": 20}) as console:
        found, page = search(console.http, name, text="same", in_value=1)
        assert len(found) == 20
        assert "Stopped at 20 hits." in page
        started = console.http.form(f"/topics/{name}/search", text="never there", in_value=1)
        search_id = str(started.url).rpartition("/")[2]
        console.http.form(f"/searches/{search_id}/cancel")
        wait_until(lambda: re.search("Cancelled|0 found", console.http.get(str(started.url)).text))
        with console.client() as stranger:
            stranger.get("/")
            assert stranger.get(f"/searches/{search_id}/events").status_code == 404


def test_live_tail(browser: Client, new_topic: Callable[..., str], write: Callable[..., int]) -> None:
    name = new_topic()
    write(name, ["before"])
    with browser.stream("GET", f"/topics/{name}/tail") as answer:
        lines = answer.iter_lines()
        assert next(line for line in lines if line == "event: started")
        for line in lines:
            if line.startswith("data: {}"):
                write(name, ["fresh"])
            if line.startswith('data: {"html"') and "fresh" in line:
                assert "before" not in line
                break
            if line.startswith(": still"):
                write(name, ["fresh"])


def test_schemas(browser: Client) -> None:
    name = f"subject/{time.time_ns()} & co"
    page = browser.form("/schemas/register", name=name, kind="AVRO", schema=ORDER)
    assert "Registered under id" in page.text
    assert (
        "Registered under id"
        in browser.form("/schemas/register", name=name, kind="AVRO", schema=ORDER_2).text
    )
    page = browser.get("/schemas/subject", params={"name": name, "version": "2", "compare": "1"}).text
    assert "Version 1 on the left, 2 on the right" in page
    assert 'class="added"' in page
    bad = ORDER.replace('"long"', '"string"')
    verdict = browser.form("/schemas/check", name=name, kind="AVRO", schema=bad).text
    assert "Not compatible." in verdict
    assert "Compatible." in browser.form("/schemas/check", name=name, kind="AVRO", schema=ORDER).text
    assert "Compatible." in browser.form("/schemas/check", name="none-yet", kind="AVRO", schema=ORDER).text
    refused = browser.form("/schemas/register", name=name, kind="AVRO", schema=bad)
    assert refused.status_code == 400
    assert 'role="alert"' in refused.text
    assert "FULL" in browser.form("/schemas/level", name=name, level="FULL").text
    assert browser.form("/schemas/level", name=name, level="").status_code == 200
    assert name.replace("&", "&amp;") in browser.get("/schemas", params={"q": name[:20]}).text
    assert browser.form("/schemas/delete", name=name, confirm="no").status_code == 400
    assert "was deleted" in browser.form("/schemas/delete", name=name, confirm=name, version="").text
    assert browser.get("/schemas/subject", params={"name": name}).status_code == 404


def test_groups_and_reset(
    browser: Client, cluster: Cluster, new_topic: Callable[..., str], write: Callable[..., int]
) -> None:
    topic = new_topic(partitions=2)
    for p in range(2):
        write(topic, [Record(0, 1_700_000_000_000 + i * 1000, None, b"x") for i in range(50)], partition=p)
    name = f"group/{time.time_ns()} ü"
    Groups(cluster).commit(name, {(topic, 0): 10, (topic, 1): 50})
    wait_until(lambda: name in browser.get("/groups", params={"q": name}).text)
    assert browser.get("/groups", params={"sort": "lag"}).status_code == 200
    page = browser.get("/groups/view", params={"name": name}).text
    assert re.search(r'class="value">40<', page)

    def plan(**fields: object) -> list[list[object]]:
        text = browser.form("/groups/reset", name=name, **fields).text
        found = re.search(r'name="plan" value="([^"]+)"', text)
        assert found is not None, text
        return list(json.loads(found[1].replace("&#34;", '"')))

    assert [row[2] for row in plan(mode="earliest")] == [0, 0]
    assert [row[2] for row in plan(mode="latest")] == [50, 50]
    assert [row[2] for row in plan(mode="offset", value="70")] == [50, 50]
    assert [row[2] for row in plan(mode="shift", value="-15")] == [0, 35]
    assert [row[2] for row in plan(mode="time", value="2023-11-14T22:13:40Z", topic=topic)] == [20, 20]
    for wrong in ({"mode": "shift", "value": "x"}, {"mode": "time", "value": "x"}, {"mode": "up"}):
        assert browser.form("/groups/reset", name=name, **wrong).status_code == 400
    committed = {
        topic_partition: found.offset for topic_partition, found in Groups(cluster).committed(name).items()
    }  # type: ignore[union-attr]
    assert committed == {(topic, 0): 10, (topic, 1): 50}  # nothing of this has changed anything

    done = browser.form("/groups/reset/apply", name=name, plan=json.dumps(plan(mode="shift", value="-5")))
    assert "Offsets of 2 partitions were set." in done.text
    committed = {
        topic_partition: found.offset for topic_partition, found in Groups(cluster).committed(name).items()
    }  # type: ignore[union-attr]
    assert committed == {(topic, 0): 5, (topic, 1): 45}
    assert browser.form("/groups/reset/apply", name=name, plan="junk").status_code == 400
    assert browser.form("/groups/delete", name=name, confirm="").status_code == 400
    assert "was deleted" in browser.form("/groups/delete", name=name, confirm=name).text


def test_topic_page_names_its_readers(
    browser: Client, cluster: Cluster, new_topic: Callable[..., str], write: Callable[..., int]
) -> None:
    topic = new_topic()
    write(topic, ["a", "b"])
    group = f"reader-{time.time_ns()}"
    Groups(cluster).commit(group, {(topic, 0): 1})
    wait_until(lambda: group in browser.get(f"/topics/{topic}").text)
    part = browser.get(f"/topics/{topic}", headers={"hx-target": "partitions"}).text
    assert "<html" not in part


def test_for_machines(browser: Client, console: RunningConsole) -> None:
    wait_until(lambda: browser.get("/health").json()["status"] == "up")
    health = browser.get("/health").json()
    assert health["registry"] == {"status": "up"}
    assert browser.get("/health/live").json() == {"status": "up"}
    wait_until(lambda: "kafka_topic_partition_current_offset{" in browser.get("/metrics").text)
    metrics = browser.get("/metrics")
    assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
    for line in metrics.text.splitlines():
        assert line.startswith("# ") or re.fullmatch(r"[a-z_:]+(\{.*\})? -?[0-9.e+-]+", line), line
    assert "kafka_brokers 1" in metrics.text
    page = browser.get("/services")
    assert "millstream_console_samples_total" in page.text
    found = browser.get("/services", params={"q": "kafka_brokers"}, headers={"hx-target": "samples"}).text
    assert "kafka_brokers" in found
    assert "process_cpu" not in found


def test_pipelines(
    bootstrap: str, cluster: Cluster, new_topic: Callable[..., str], write: Callable[..., int]
) -> None:
    topic = f"pipelines-{time.time_ns()}"
    with RunningConsole(bootstrap, {"pipelines.topic": topic}) as console:
        assert "No pipeline has reported yet" in console.http.get("/pipelines").text
        new_topic(name=topic, configs={"cleanup.policy": "compact"})
        now = round(time.time() * 1000)
        query = QueryStatus(
            "counts", "running", 12, 340, 5000, 61.5, 480.0, 77, state_rows=9, state_bytes=4096
        )
        running = Status("orders-by-hour", "run-1", "running", started=now, updated=now, queries=[query])
        failed = Status("broken", "run-2", "failed", updated=now, last_error="<b>no such column</b>")
        lost = Status("quiet", "run-3", "running", started=now - 90_000, updated=now - 60_000)
        for one in (running, failed, lost):
            write(topic, [Record(0, now, status_key(one.pipeline), write_status(one))])
        write(topic, [Record(0, now, b"junk", b"junk"), Record(0, now, b"more", None)])
        page = console.http.get("/pipelines").text
        assert "orders-by-hour" in page
        assert "61.5" in page
        assert "&lt;b&gt;no such column" in page
        assert ">lost<" in page
        assert (
            "was asked to stop"
            in console.http.form("/pipelines/stop", name="orders-by-hour", run="run-1").text
        )
        write(topic, [Record(0, now, status_key("broken"), None)])
        part = console.http.get("/pipelines", headers={"hx-target": "reports"}).text
        assert "no such column" not in part
        assert "<html" not in part


def test_group_with_members(browser: Client, bootstrap: str, new_topic: Callable[..., str]) -> None:
    from confluent_kafka import Consumer

    topic = new_topic(partitions=2)
    name = f"busy-{time.time_ns()}"
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": name, "client.id": "worker-7"})
    consumer.subscribe([topic])
    try:

        def assigned() -> object:
            consumer.poll(0.1)
            return consumer.assignment()

        wait_until(assigned)
        page = browser.get("/groups/view", params={"name": name}).text
        assert "worker-7" in page
        assert "Stable" in page
        refused = browser.form("/groups/reset", name=name, mode="earliest", topic=topic)
        assert refused.status_code == 400
        assert "without members" in refused.text
    finally:
        consumer.close()
