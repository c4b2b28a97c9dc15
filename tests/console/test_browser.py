"""Every page in a real Chromium: it opens without an error, axe finds no serious fault in light and dark, it
fits a phone, and people can do with it what it is for.

MILLSTREAM_SCREENSHOTS=docs/screenshots keeps pictures of the pages there.
"""

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.running import RunningRegistry

from .console_client import RunningConsole
from .scene import Scene

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

expect.set_options(timeout=20_000)
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text()
SHOTS = os.environ.get("MILLSTREAM_SCREENSHOTS")
PAGES = {
    "overview": "/",
    "topics": "/topics",
    "new-topic": "/new-topic",
    "topic": "/topics/shop.orders",
    "messages": "/topics/shop.orders/messages",
    "junk": "/topics/junk/messages",
    "message": "/topics/shop.customers/messages/0/0",
    "search": "/topics/shop.payments/search",
    "produce": "/topics/shop.payments/produce",
    "settings": "/topics/shop.orders/settings",
    "manage": "/topics/shop.payments/manage",
    "groups": "/groups",
    "group": "/groups/view?name=billing",
    "schemas": "/schemas",
    "schema": "/schemas/subject?name=shop.orders-value&version=2&compare=1",
    "new-schema": "/schemas/new",
    "pipelines": "/pipelines",
    "clients": "/clients",
    "services": "/services",
    "not-there": "/topics/never-made",
}
PICTURES = ("overview", "topics", "topic", "messages", "search", "group", "schema", "pipelines")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def shop(bootstrap: str, registry: RunningRegistry) -> Iterator[RunningConsole]:
    """A console on a cluster with something in it."""
    scene = Scene(bootstrap, registry.url)
    settings = {"schema.registry.url": registry.url, "cluster.name": "shop", "sample.interval.ms": 500}
    with RunningConsole(bootstrap, settings) as running:
        yield running
    scene.close()


@pytest.fixture
def context(chromium: Browser, shop: RunningConsole) -> Iterator[BrowserContext]:
    made = chromium.new_context(
        base_url=shop.url, viewport={"width": 1280, "height": 860}, color_scheme="light"
    )
    made.set_default_timeout(20_000)
    yield made
    made.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """Fails a test in which the browser complained about anything."""
    made = context.new_page()
    complaints: list[str] = []
    made.on("pageerror", lambda error: complaints.append(str(error)))
    made.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    yield made
    expected = "Failed to load resource: the server responded with a status of 4"
    assert [text for text in complaints if not text.startswith(expected)] == []


def faults(page: Page, only: list[str] | None = None) -> list[str]:
    """What axe calls serious or critical, with the places."""
    page.evaluate(AXE)
    options: dict[str, Any] = {"resultTypes": ["violations"]}
    if only:
        options["runOnly"] = {"type": "rule", "values": only}
    result = page.evaluate("options => axe.run(document, options)", options)
    return [
        f"{one['id']}: {one['help']}: {[node['html'][:160] for node in one['nodes'][:3]]}"
        for one in result["violations"]
        if one["impact"] in ("serious", "critical")
    ]


def keep(page: Page, name: str) -> None:
    if SHOTS:
        Path(SHOTS).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=str(Path(SHOTS) / f"{name}.png"))


@pytest.mark.parametrize("name", list(PAGES))
def test_page_is_sound(page: Page, name: str) -> None:
    page.goto(PAGES[name])
    expect(page.locator("h1")).to_be_visible()
    if name in ("messages", "junk"):
        page.locator("details.msg summary").first.click()
    assert faults(page) == []
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    assert faults(page, ["color-contrast"]) == []
    page.set_viewport_size({"width": 390, "height": 844})
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= 390, f"the page is {width} wide on a phone"


def test_pictures(chromium: Browser, shop: RunningConsole) -> None:
    """Only when asked for: what the README shows."""
    if not SHOTS:
        return
    # Charts of some length, in pictures that are taken by hand.
    time.sleep(20)
    looks = {"light": (1280, 860, "light"), "dark": (1280, 860, "dark"), "phone": (390, 844, "light")}
    for look, (width, height, scheme) in looks.items():
        phone = look == "phone"
        context = chromium.new_context(
            base_url=shop.url,
            viewport={"width": width, "height": height},
            color_scheme=scheme,  # type: ignore[arg-type]
            is_mobile=phone,
            device_scale_factor=1.5 if phone else 1,
        )
        page = context.new_page()
        for name in PICTURES:
            page.goto(PAGES[name])
            page.wait_for_timeout(800)
            if name == "messages":
                page.locator("details.msg summary").first.click()
            if name == "search":
                page.get_by_label("Expression").fill('value.status == "DECLINED" and value.order < 40')
                page.get_by_role("button", name="Search the topic").click()
                page.locator("details.msg summary").first.click()
                page.wait_for_timeout(600)
            keep(page, f"{name}-{look}")
        context.close()


def test_charts_are_drawn_and_move(page: Page) -> None:
    page.goto("/")
    expect(page.locator("figure[data-chart=rate] canvas")).to_be_visible()
    expect(page.locator("figure[data-chart=lag] canvas")).to_be_visible()
    now = page.locator("[data-now=lag]")
    before = now.text_content()
    expect(now).not_to_have_text(before or "")  # the writer writes, and nobody reads


def test_a_topic_from_beginning_to_end(page: Page) -> None:
    # Also the last word of the address under which topics used to be made.
    name = "new"
    page.goto("/topics")
    page.get_by_role("link", name="New topic").click()
    page.locator("input[name=name]").fill(name)
    page.locator("input[name=partitions]").fill("2")
    page.get_by_role("button", name="Create topic").click()
    expect(page.get_by_text(f"Topic {name} was created.")).to_be_visible()

    page.get_by_role("link", name="Produce").click()
    page.locator("input[name=key]").fill("k1")
    page.locator("textarea[name=value]").fill('{"greeting": "hello"}')
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.get_by_text("Written to partition")).to_be_visible()
    page.locator("details.msg summary").first.click()
    expect(page.locator("pre.content .j-key").first).to_have_text('"greeting"')

    page.get_by_role("button", name="Send again").click()
    expect(page.get_by_text("Sent again:")).to_be_visible()
    expect(page.locator("details.msg")).to_have_count(2)

    page.get_by_role("link", name="Settings").click()
    field = page.get_by_label("Value of retention.ms", exact=True)
    field.fill("120000")
    field.press("Enter")
    expect(page.get_by_text("retention.ms was changed.")).to_be_visible()
    expect(page.locator("tr", has_text="retention.ms").get_by_text("this topic").first).to_be_visible()

    page.get_by_role("link", name="Manage").click()
    delete = page.get_by_role("button", name="Delete the topic")
    expect(delete).to_be_disabled()
    page.locator("form[action$='/delete']").get_by_label("to confirm").fill(name)
    expect(delete).to_be_enabled()
    delete.click()
    expect(page.get_by_text(f"Topic {name} was deleted.")).to_be_visible()


def test_settings_can_be_changed_on_a_phone(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto("/topics/shop.orders/settings")
    field = page.get_by_label("Value of retention.ms", exact=True).bounding_box()
    save = page.locator("form.edit").first.get_by_role("button", name="Save").bounding_box()
    assert field is not None
    assert save is not None
    for box in (field, save):
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390


def test_topic_list_narrows_while_typing(page: Page) -> None:
    page.goto("/topics")
    expect(page.get_by_role("link", name="plant.alarms")).to_be_visible()
    page.get_by_label("Search topics").fill("shop")
    expect(page.get_by_role("link", name="plant.alarms")).to_have_count(0)
    expect(page.get_by_role("link", name="shop.orders")).to_be_visible()
    assert "q=shop" in page.url


def test_live_tail_in_the_browser(page: Page) -> None:
    page.goto("/topics/shop.orders/messages")
    page.get_by_role("button", name="Live tail").click()
    expect(page.locator("details.msg.new").first).to_be_visible()
    expect(page.locator("[data-tail-status]")).to_have_text(re.compile(r"\d+ new messages"))
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("Stopped after")).to_be_visible()
    page.locator("details.msg summary").first.click()
    expect(page.get_by_text("schema").first).to_be_visible()


def test_search_in_the_browser(page: Page) -> None:
    page.goto("/topics/shop.payments/search")
    page.get_by_label("Expression").fill('value.status == "DECLINED" and value.order < 40')
    page.get_by_role("button", name="Search the topic").click()
    expect(page.get_by_text(re.compile(r"\d+ found\."))).to_be_visible()
    expect(page.locator("details.msg").first).to_be_visible()
    expect(page.locator("details.msg").first).to_contain_text("DECLINED")
    page.get_by_label("Expression").fill("value.status = ")
    page.get_by_role("button", name="Search the topic").click()
    expect(page.get_by_role("alert")).to_contain_text("makes no sense")


def test_group_reset_with_a_preview(page: Page) -> None:
    page.goto("/groups/view?name=reports")
    page.get_by_label("Move").select_option("latest")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_text("What the reset would do")).to_be_visible()
    page.get_by_role("button", name="Set these offsets").click()
    expect(page.get_by_text("Offsets of 6 partitions were set.")).to_be_visible()


def test_schema_check_in_place(page: Page) -> None:
    page.goto("/schemas/subject?name=shop.orders-value")
    text = page.get_by_label("Schema of the new version")
    text.fill(text.input_value().replace('"long"', '"string"'))
    page.get_by_role("button", name="Check compatibility").click()
    expect(page.get_by_text("Not compatible.")).to_be_visible()


def test_the_keyboard(page: Page) -> None:
    page.goto("/")
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("g")
    page.keyboard.press("t")
    page.wait_for_url("**/topics")
    page.keyboard.press("/")
    expect(page.get_by_label("Search topics")).to_be_focused()
    page.keyboard.type("junk")
    expect(page.get_by_role("link", name="plant.alarms")).to_have_count(0)
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/topics/junk")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()


def test_dark_stays_dark(page: Page) -> None:
    page.goto("/")
    page.get_by_role("button", name="Dark or light").click()
    page.goto("/topics")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_the_browser_is_told_when_the_cluster_goes(
    context: BrowserContext, shop: RunningConsole, new_topic: Callable[..., str]
) -> None:
    from millstream.testing import Broker

    with Broker() as broker, RunningConsole(broker.bootstrap_servers, {"sample.interval.ms": 200}) as running:
        page = context.new_page()
        page.goto(running.url)
        expect(page.locator("#problem")).to_be_hidden()
        broker.stop()
        expect(page.locator("#problem")).to_be_visible()
        broker.start()
        expect(page.locator("#problem")).to_be_hidden()
