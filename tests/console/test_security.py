"""Who gets in, what a stranger's form can do, and what masking rules hide."""
# ruff: noqa: S106

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from millstream.console import users
from millstream.console.users import (
    LoginChecker,
    TooManyTries,
    User,
    hash_password,
    read_users,
    verify_password,
)
from millstream.wire.records import Record

from .console_client import Client, RunningConsole
from .test_pages import offsets_on, search

POSTS = (
    "/new-topic",
    "/topics/x/settings",
    "/topics/x/partitions",
    "/topics/x/empty",
    "/topics/x/delete",
    "/topics/x/produce",
    "/topics/x/search",
    "/topics/x/messages/0/0/resend",
    "/searches/x/cancel",
    "/schemas/register",
    "/schemas/check",
    "/schemas/level",
    "/schemas/delete",
    "/groups/reset",
    "/groups/reset/apply",
    "/groups/delete",
    "/pipelines/stop",
    "/login",
    "/logout",
)
HARMLESS = ("/topics/x/search", "/searches/x/cancel", "/schemas/check", "/login", "/logout")
MASKS = """\
# topics   part          how
masked-*   value.card    last4
masked-*   value.**.pin  hide
masked-*   header.token  hide
masked-*   key           hash
"""


def test_every_form_of_the_console_is_in_the_list() -> None:
    """So that a new one is tested too."""
    pages = Path(__file__).parents[2] / "src" / "millstream" / "console" / "pages"
    found = {
        re.sub(r"\{(partition|offset)\}", "0", re.sub(r"\{(name|search_id)\}", "x", path))
        for file in pages.glob("*.py")
        for path in re.findall(r'@router\.post\("([^"]+)"\)', file.read_text())
    }
    if found:  # run from a checkout
        assert found == set(POSTS)


def test_headers_of_every_page(browser: Client) -> None:
    for path in ("/", "/topics", "/nothing", "/static/console.css", "/health"):
        headers = browser.get(path).headers
        assert "script-src 'self'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
    assert browser.get("/").headers["cache-control"] == "no-store"


def test_pages_have_no_inline_script_or_style(browser: Client) -> None:
    for path in ("/", "/topics", "/groups", "/schemas", "/services", "/new-topic"):
        page = browser.get(path).text
        assert not re.search(r"<script(?![^>]*\bsrc=)", page)
        assert not re.search(r"\s(style|on[a-z]+)=", page)


@pytest.mark.parametrize("path", POSTS)
def test_a_form_of_another_site_is_refused(browser: Client, path: str) -> None:
    token = browser.token()
    assert browser.post(path, data={"name": "x"}).status_code == 403
    assert browser.post(path, data={"csrf": "0" * 40}).status_code == 403
    elsewhere = {"origin": "http://evil.example"}
    assert browser.post(path, data={"csrf": token}, headers=elsewhere).status_code == 403
    assert (
        browser.post(path, data={"csrf": token}, headers={"sec-fetch-site": "cross-site"}).status_code == 403
    )
    assert browser.post(path, json={"csrf": token}).status_code == 415


def test_a_token_of_another_session_is_refused(browser: Client, console: RunningConsole) -> None:
    with console.client() as other:
        token = other.token()
    browser.get("/")
    assert browser.post("/new-topic", data={"csrf": token, "name": "x"}).status_code == 403


def test_the_session_cookie(browser: Client) -> None:
    """For scripts and other sites it does not exist, it ends with the browser, and a forged one is none."""
    browser.cookies.clear()
    flags = browser.get("/").headers["set-cookie"].lower()
    assert "; httponly; samesite=lax" in flags
    assert "max-age" not in flags
    assert "expires" not in flags
    assert "set-cookie" not in browser.get("/").headers
    content, _, signature = browser.cookies["millstream_console"].partition(".")
    forged = f"{content[:-1]}{'A' if content[-1] != 'A' else 'B'}.{signature}"
    browser.cookies.clear()
    assert "set-cookie" not in browser.get("/static/console.css").headers
    assert "set-cookie" in browser.get("/", headers={"cookie": f"millstream_console={forged}"}).headers


def test_other_host_names_are_refused(browser: Client) -> None:
    """A name that was made to point here (DNS rebinding) is not this console's."""
    assert browser.get("/", headers={"host": "evil.example"}).status_code == 421
    assert browser.get("/", headers={"host": "localhost:8080"}).status_code == 200


def test_monitoring_keeps_to_its_names_with_users_too(guarded: RunningConsole) -> None:
    """It needs no login, so a page under another name could read it."""
    with guarded.client() as client:
        for path in ("/metrics", "/metrics/all", "/health/live"):
            assert client.get(path, headers={"host": "evil.example"}).status_code == 421, path
            assert client.get(path).status_code == 200, path
        assert client.get("/login", headers={"host": "console.corp.example"}).status_code == 200


def test_pages_of_other_sites_may_only_link_here(browser: Client) -> None:
    """Streams of events would use up what the console has of them, exports its time."""
    elsewhere = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"}
    for path in ("/", "/live", "/topics/x/tail", "/topics/x/export", "/searches/x/events", "/metrics/all"):
        assert browser.get(path, headers=elsewhere).status_code == 403, path
    assert browser.get("/", headers={**elsewhere, "sec-fetch-mode": "navigate"}).status_code == 200


def test_large_forms_are_refused(browser: Client) -> None:
    token = browser.token()
    answer = browser.post("/new-topic", data={"csrf": token, "name": "x" * (11 << 20)})
    assert answer.status_code == 413


@pytest.fixture(scope="module")
def guarded(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningConsole]:
    """A console with users and masking rules."""
    folder = tmp_path_factory.mktemp("guarded")
    lines = [f"{name}:{hash_password(name + '-secret')}:{roles}" for name, roles in USERS.items()]
    (folder / "users").write_text("# who\n" + "\n".join(lines) + "\n")
    (folder / "masks").write_text(MASKS)
    settings = {
        "users.file": folder / "users",
        "masking.file": folder / "masks",
        "login.failures.per.address": 0,
    }
    with RunningConsole(bootstrap, settings) as running:
        yield running


USERS = {"vera": "viewer", "target": "viewer", "ed": "editor", "root": "editor,unmasked"}


def as_user(console: RunningConsole, name: str) -> Client:
    client = console.client()
    answer = client.form("/login", name=name, password=f"{name}-secret", next="/topics")
    assert answer.status_code == 200
    assert str(answer.url).endswith("/topics")
    return client


def test_login(guarded: RunningConsole) -> None:
    with guarded.client() as stranger:
        assert "/login?next=/topics" in str(stranger.get("/topics").url)
        assert stranger.get("/live", headers={"accept": "text/event-stream"}).status_code == 401
        assert stranger.get("/topics", headers={"hx-request": "true"}).headers["hx-redirect"] == "/login"
        assert stranger.get("/health/live").status_code == 200
        wrong = stranger.form("/login", name="ed", password="guess")
        assert wrong.status_code == 401
        assert "Name or password is wrong." in wrong.text
        assert stranger.form("/login", name="nobody", password="guess").status_code == 401
    with closing(as_user(guarded, "ed")) as ed:
        assert ed.get("/new-topic").status_code == 200
        kept = dict(ed.cookies)
        ed.form("/logout")
        with guarded.client() as thief:  # a copy of the cookie ends with the login, too
            thief.cookies.update(kept)
            assert "Log in" in thief.get("/topics").text
        assert "/login" in str(ed.get("/topics").url)
    with guarded.client() as client:
        away = client.form("/login", name="ed", password="ed-secret", next="//evil.example/")
        assert str(away.url).startswith(guarded.url)


def test_guessing_is_slowed_down(guarded: RunningConsole) -> None:
    with guarded.client() as stranger:
        answers = [stranger.form("/login", name="victim", password=str(i)).status_code for i in range(7)]
    assert answers[0] == 401
    assert answers[-1] == 429


def test_guesses_at_the_same_moment_count_one_by_one(guarded: RunningConsole) -> None:
    """The right password is the last of sixty: it must not be reached."""
    with guarded.client() as stranger:
        token = stranger.token("/login")

        def guess(number: int) -> int:
            password = "target-secret" if number == 59 else str(number)
            fields = {"csrf": token, "name": "target", "password": password, "next": "/health"}
            return httpx.post(
                f"{guarded.url}/login", data=fields, cookies=dict(stranger.cookies), timeout=120
            ).status_code

        with ThreadPoolExecutor(60) as threads:
            statuses = list(threads.map(guess, range(60)))
    assert statuses.count(429) >= 55
    assert statuses.count(401) + statuses.count(303) <= 5


def test_guessing_by_address() -> None:
    """Each name once: the address has to wait. A right password in between makes no room for more."""
    ann = User("ann", hash_password("right"), frozenset({"editor"}))
    checker = LoginChecker({"ann": ann}, max_address_failures=20)

    async def scenario() -> None:
        for number in range(19):
            assert await checker.check(f"name-{number}", "guess", "203.0.113.7") is None
            assert await checker.check("ann", "right", "203.0.113.7") is ann
        assert await checker.check("last", "guess", "203.0.113.7") is None
        with pytest.raises(TooManyTries):
            await checker.check("ann", "right", "203.0.113.7")
        assert await checker.check("ann", "right", "203.0.113.8") is ann
        for number in range(20):
            await checker.check(f"six-{number}", "guess", f"2001:db8::{number:x}")
        with pytest.raises(TooManyTries):
            await checker.check("ann", "right", "2001:db8::ffff")

    try:
        asyncio.run(scenario())
    finally:
        checker.close()


def test_right_passwords_that_arrive_together_are_no_guesses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does anybody learn more by guessing all at once."""
    monkeypatch.setattr(users, "verify_password", lambda password, stored: password == stored)
    names = [f"user-{number}" for number in range(12)]
    checker = LoginChecker({name: User(name, name, frozenset()) for name in names}, max_address_failures=4)

    async def scenario() -> None:
        for _ in range(6):  # four at a time; the others come again
            tries = (checker.check(name, name, "10.0.0.1") for name in names)
            found = await asyncio.gather(*tries, return_exceptions=True)
            assert sum(isinstance(one, User) for one in found) == 4
            assert [one.seconds for one in found if isinstance(one, TooManyTries)] == [1] * 8
        assert all([await checker.check(name, name, "10.0.0.1") for name in names])
        guesses = (checker.check(name, "wrong", "10.0.0.1") for name in names)
        wrong = await asyncio.gather(*guesses, return_exceptions=True)
        assert wrong.count(None) == 4
        with pytest.raises(TooManyTries) as refused:
            await checker.check(names[0], names[0], "10.0.0.1")
        assert refused.value.seconds > 1

    try:
        asyncio.run(scenario())
    finally:
        checker.close()


def test_logins_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """One check at a time (scrypt takes memory), sixteen at the most that wait, whatever their names."""
    at_work, most_at_work = 0, 0

    def verify(password: str, stored: str) -> bool:
        nonlocal at_work, most_at_work
        at_work += 1
        most_at_work = max(at_work, most_at_work)
        # Long enough for another check to begin, were it allowed to.
        time.sleep(0.005)
        at_work -= 1
        return False

    monkeypatch.setattr(users, "verify_password", verify)
    checker = LoginChecker({}, max_address_failures=0)

    async def scenario() -> list[User | BaseException | None]:
        tries = (checker.check(f"name-{number}", "guess", f"10.0.0.{number}") for number in range(100))
        return await asyncio.gather(*tries, return_exceptions=True)

    try:
        results = asyncio.run(scenario())
    finally:
        checker.close()
    assert most_at_work == 1
    assert results.count(None) == 16
    assert sum(isinstance(result, TooManyTries) for result in results) == 84


def test_passwords_of_services_are_not_shown(bootstrap: str, console: RunningConsole) -> None:
    """Neither in the table of services nor in the error of one that refuses."""
    refusing = console.url.replace("http://", "http://scraper:hush@") + "/nothing"
    with RunningConsole(bootstrap, {"metrics.urls": f"other={refusing}"}) as running:
        page = running.http.get("/services").text
        assert "404" in page
        assert "scraper:[hidden]@" in page
        assert "hush" not in page + running.http.get("/metrics/all").text + running.log()


def test_a_viewer_changes_nothing(guarded: RunningConsole) -> None:
    with closing(as_user(guarded, "vera")) as vera:
        assert "New topic" not in vera.get("/topics").text
        for path in set(POSTS) - set(HARMLESS):
            assert vera.form(path, name="x").status_code == 403


def test_read_only_console(bootstrap: str) -> None:
    with RunningConsole(bootstrap, {"read.only": "true"}) as running:
        assert "read-only" in running.http.get("/").text
        for path in set(POSTS) - set(HARMLESS):
            assert running.http.form(path, name="x").status_code == 403


def test_masked_values(
    guarded: RunningConsole, new_topic: Callable[..., str], write: Callable[..., int]
) -> None:
    name = new_topic(name=f"masked-{time.time_ns()}")
    value = b'{"card":"4111222233334444","deep":[{"pin":"9876"}],"open":"yes"}'
    record = Record(0, 1_700_000_000_000, b"customer-42", value, (("token", b"s3cr3t"), ("other", b"shown")))
    write(name, [record, Record(0, 1_700_000_000_001, b"customer-43", b"4111222233334444 as text")])
    secrets = ("411122223333", "9876", "customer-42", "s3cr3t")
    with closing(as_user(guarded, "ed")) as ed:
        for path in (
            "messages",
            "messages/0/0",
            "messages/0/1",
            "export",
            "export?form=csv",
            "produce?copy=0-0",
        ):
            page = ed.get(f"/topics/{name}/{path}").text
            for secret in secrets:
                assert secret not in page, path
        page = ed.get(f"/topics/{name}/messages").text
        assert "\u2022\u2022\u2022\u20224444" in page
        assert "shown" in page
        assert "&#34;open&#34;: &#34;yes&#34;" in page
        assert ed.get(f"/topics/{name}/messages/0/0/raw").status_code == 403
        assert ed.form(f"/topics/{name}/messages/0/0/resend", target="elsewhere").status_code == 403
        # A search must not tell what the page hides.
        for text in ("4111222233334444", "9876", "s3cr3t", "customer-42"):
            assert search(ed, name, text=text, in_key=1, in_value=1, in_header=1)[0] == []
        assert search(ed, name, expression='value.card == "4111222233334444"')[0] == []
        assert search(ed, name, expression='value contains "41112222"')[0] == []
        assert search(ed, name, text="yes", in_value=1)[0] == [(0, 0)]
    with closing(as_user(guarded, "root")) as root:
        page = root.get(f"/topics/{name}/messages").text
        assert "4111222233334444" in page
        assert offsets_on(page) == [(0, 1), (0, 0)]
        assert root.get(f"/topics/{name}/messages/0/0/raw").content == value
        assert len(search(root, name, text="4111222233334444", in_value=1)[0]) == 2


def test_passwords_are_hashed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "millstream", "console", "hash-password", "ann", "--roles", "editor"]
    made = subprocess.run(command, input="open sesame\n", capture_output=True, text=True, check=True).stdout
    assert "sesame" not in made
    (tmp_path / "users").write_text(made)
    ann = read_users(str(tmp_path / "users"))["ann"]
    assert ann.may_change
    assert verify_password("open sesame", ann.hash)
    assert not verify_password("Open sesame", ann.hash)
    assert not verify_password("x", "scrypt$nonsense")


@pytest.mark.parametrize(
    ("setting", "content", "says"),
    [
        ("users.file", "ann:plain:editor\n", "line 1"),
        ("users.file", "# nobody\n", "names no user"),
        ("masking.file", "\norders value.card shred\n", "line 2"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, setting: str, content: str, says: str) -> None:
    (tmp_path / "file").write_text(content)
    command = [sys.executable, "-m", "millstream", "console", "--set", f"{setting}={tmp_path / 'file'}"]
    command += ["--set", "listeners=http://127.0.0.1:0"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert says in ended.stderr
    assert "Traceback" not in ended.stderr
