"""`secure init`, `format --add-scram`, users by `configs`, and `up --secure`: as a user runs them."""

from __future__ import annotations

import contextlib
import json
import os
import ssl
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from millstream.cli.errors import UsageError
from millstream.cli.scram_users import are_credentials, parse_add_scram, parse_password
from millstream.client.scram import salt_password
from millstream.settings.properties import read_properties
from millstream.testing import Broker
from tests.console.console_client import Client
from tests.support.waiting import wait_until

from .conftest import Run
from .test_up import Up, up  # noqa: F401


@pytest.fixture(autouse=True)
def own_profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def _broker(config: Path, port_file: Path) -> Broker:
    import sys

    command = [sys.executable, "-m", "millstream.testing._child", "broker", "--config", str(config)]
    given = {"listeners": "SASL_SSL://127.0.0.1:0", "advertised.listeners": "SASL_SSL://127.0.0.1:0"}
    return Broker({"log.dirs": port_file, **given}, command=command)


def test_from_nothing_to_a_secured_broker(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "made"
    done = run("secure", "init", "--dir", str(folder), "--host", "127.0.0.1", "--profile", "")
    assert done.code == 0, done.err
    for path in folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    password = read_properties(str(folder / "client.properties"))["sasl.jaas.config"].split('password="')[1][
        :-2
    ]
    assert password not in done.out
    again = run("secure", "init", "--dir", str(folder), "--profile", "")
    assert again.code == 1 and "is not empty" in again.err
    with _broker(folder / "server.properties", folder / "data") as broker:
        words = (
            "--bootstrap-server",
            broker.bootstrap_servers,
            "--command-config",
            str(folder / "client.properties"),
        )
        assert run("topics", "--create", "--topic", "orders", *words).out == "Created topic orders.\n"
        users = ("--entity-type", "users", *words)
        added = run(
            "configs",
            "--alter",
            "--entity-name",
            "bob",
            "--add-config",
            "SCRAM-SHA-512=[password=b,o=b]",
            *users,
        )
        assert added.out == "Completed updating config for user bob.\n", added.err
        assert run("configs", "--describe", "--entity-name", "bob", *users).out == (
            "SCRAM credential configs for user-principal 'bob' are SCRAM-SHA-512=iterations=4096\n"
        )
        bob = tmp_path / "bob.properties"
        text = (folder / "client.properties").read_text().replace('username="admin"', 'username="bob"')
        bob.write_text(text.replace(password, "b,o=b"))
        as_bob = ("--bootstrap-server", broker.bootstrap_servers, "--command-config", str(bob))
        assert run("topics", "--list", *as_bob).out == ""  # he is let in, and sees nothing yet
        refused = run("topics", "--create", "--topic", "mine", *as_bob)
        assert refused.code == 1 and "uthoriz" in refused.err
        removed = run(
            "configs", "--alter", "--entity-name", "bob", "--delete-config", "SCRAM-SHA-512", *users
        )
        assert removed.code == 0
        gone = run("topics", "--list", *as_bob)
        assert gone.code == 1 and "login of 'bob'" in gone.err
        running = run(
            "format", "-c", str(folder / "server.properties"), "-S", "SCRAM-SHA-512=[name=x,password=y]"
        )
        assert running.code == 1 and password not in running.err  # the broker has the folder
        # The last admin goes ...
        run("configs", "--alter", "--entity-name", "admin", "--delete-config", "SCRAM-SHA-512", *users)
        assert run("topics", "--list", *words).code == 1
        broker.stop()
        # ... and comes back.
        lost = f"SCRAM-SHA-512=[name=admin,password={password}]"
        back = run("format", "--config", str(folder / "server.properties"), "--add-scram", lost)
        assert back.code == 0 and password not in back.out, back.err
        broker.start()
        words = ("--bootstrap-server", broker.bootstrap_servers, *words[2:])
        assert run("topics", "--list", *words).out == "orders\n"
        assert password not in broker.log


def test_a_certificate_for_a_user(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "made"
    assert run("secure", "init", "--dir", str(folder), "--profile", "").code == 0
    done = run("secure", "certificate", "--dir", str(folder), "--name", "carol")
    assert done.code == 0, done.err
    assert done.out == f"Made {folder}/carol.pem: key and certificate of CN=carol, good for 365 days.\n"
    path = folder / "carol.pem"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    server.verify_mode = ssl.CERT_REQUIRED
    for context, key in ((server, folder / "broker.pem"), (client, path)):
        context.load_verify_locations(folder / "ca.pem")
        context.load_cert_chain(key)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        server.wrap_bio(to_server, to_client, server_side=True),
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
    ]
    for _ in range(4):  # flights of a handshake, and what is left of it
        for side in sides:
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
    assert sides[0].getpeercert()["subject"] == ((("commonName", "carol"),),)  # type: ignore[index]
    for words in (
        ("--name", "carol"),
        ("--name", "../x"),
        ("--name", "dave", "--days", "0"),
        ("--name", "erin", "--dir", str(tmp_path)),
    ):
        assert run("secure", "certificate", "--dir", str(folder), *words).code in (1, 2)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["made"]


def test_kip_900() -> None:
    made = parse_add_scram("SCRAM-SHA-256=[name=alice,iterations=8192,salt=MTIzNA==,password=a=b]")
    assert made.user == "alice"
    assert made.password == salt_password("SCRAM-SHA-256", "a=b", 8192, b"1234")
    salted = parse_add_scram('SCRAM-SHA-512=[name=alice,salt="MTIzNA==",saltedpassword="AAEC"]')
    assert (salted.password.salt, salted.password.salted) == (b"1234", b"\0\1\2")
    for wrong in (
        "",
        "x",
        "SCRAM-SHA-1=[name=a,password=b]",
        "SCRAM-SHA-256=[password=b]",
        "SCRAM-SHA-256=[name=a]",
        "SCRAM-SHA-256=name=a,password=b",
        "SCRAM-SHA-256=[name=a,saltedpassword=AAEC]",
        "SCRAM-SHA-256=[name=a,password=planted,iterations=100]",
        "SCRAM-SHA-256=[name=a,salt=!,password=planted]",
        "SCRAM-SHA-256=[what,name=a,password=planted]",
    ):
        with pytest.raises(UsageError) as error:
            parse_add_scram(wrong)
        assert "planted" not in str(error.value)


def test_values_of_configs() -> None:
    assert parse_password("SCRAM-SHA-256", "iterations=5000,password=x").iterations == 5000
    for wrong in ("", "iterations=5000", "iterations=1,password=x", "iterations=99999,password=x", "pass=x"):
        with pytest.raises(UsageError):
            parse_password("SCRAM-SHA-256", wrong)
    assert are_credentials(["SCRAM-SHA-256", "scram-sha-512"])
    assert not are_credentials(["producer_byte_rate"])
    with pytest.raises(UsageError):
        are_credentials(["SCRAM-SHA-256", "producer_byte_rate"])


@pytest.mark.timeout(240)
def test_the_whole_platform_secured(up: Callable[..., Up], run: Run, tmp_path: Path) -> None:  # noqa: F811
    import httpx

    one = up("--secure").ready()
    states = {service.name: service for service in one.home.instance().services}
    os.environ["MILLSTREAM_DATA_DIR"] = str(one.home.path)
    try:
        registry, rest = states["registry"].address, states["rest"].address
        assert all(states[name].address.startswith("https://") for name in ("registry", "rest", "console"))
        trusted = ssl.create_default_context(cafile=str(one.home.path / "secure" / "ca.pem"))
        assert run("-p", "up", "topics", "--create", "--topic", "words").out == "Created topic words.\n"
        # API keys and tokens need no further setting.
        assert run("-p", "up", "service-accounts", "create", "writer").code == 0
        made_key = run("-p", "up", "api-keys", "create", "--account", "writer", "-o", "json")
        key = json.loads(made_key.out)
        auth = (key["id"], key["secret"])

        def register() -> httpx.Response:
            return httpx.post(
                f"{registry}/subjects/words-value/versions",
                json={"schema": '{"type": "string"}'},
                auth=auth,
                timeout=30,
                verify=trusted,
            )

        def send() -> httpx.Response:
            return httpx.post(
                f"{rest}/topics/words",
                json={"records": [{"value": "a"}], "value_schema": '{"type": "string"}'},
                headers={"content-type": "application/vnd.kafka.avro.v2+json"},
                auth=auth,
                timeout=30,
                verify=trusted,
            )

        assert register().status_code == send().status_code == 403
        allow = ("--add", "--allow-principal", f"User:{key['account']}", "--topic", "words")
        assert run("-p", "up", "acls", *allow, "--operation", "Read", "--operation", "Write").code == 0
        wait_until(lambda: register().status_code == 200)
        sent = wait_until(lambda: (answer := send()).status_code == 200 and answer)
        assert sent.json()["offsets"][0]["error_code"] is None, sent.text
        token = run("-p", "up", "delegation-tokens", "--create", "--max-life-time-period", "-1")
        assert token.code == 0, token.err
        for name in ("registry", "rest", "console"):
            url = states[name].address
            assert httpx.get(f"{url}/metrics", timeout=30, verify=trusted).status_code == 200
            assert httpx.get(f"{url}/topics", timeout=30, verify=trusted).status_code in (303, 401)
            with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                httpx.get(f"{url}/metrics", timeout=30)

        admin = read_properties(str(one.home.path / "secure" / "admin.properties"))
        password = admin["sasl.jaas.config"].split('password="')[1][:-2]
        with Client(
            base_url=states["console"].address, timeout=30, follow_redirects=True, verify=trusted
        ) as browser:
            assert browser.form("/login", name="admin", password=password).status_code == 200
            # At the console's next sample of the cluster; the registry knows the console.
            wait_until(lambda: "words" in browser.get("/topics").text)
            wait_until(lambda: "words-value" in browser.get("/schemas").text)
            # And it reads the metrics of the others, whose certificates it trusts.
            up_now = browser.get("/metrics/all").text
            assert all(
                f'millstream_service_up{{service="{name}"}} 1.0' in up_now for name in ("rest", "broker")
            )
        # The command line knows where the registry is, whom to trust, and who it is.
        by_schema = ("--reader-property", 'value.schema={"type": "string"}', "--value-format", "avro")
        wrote = run("-p", "up", "console-producer", "--topic", "words", *by_schema, stdin='"b"\n')
        assert wrote.code == 0, wrote.err
        examined = {found["what"]: found["state"] for found in json.loads(run("doctor", "-o", "json").out)}
        for what in ("Certificate broker.pem", "Passwords and keys", "Encryption"):
            assert examined[what] == "ok"
        # Without a login there is nothing to be had.
        plain = run("topics", "--list", "--bootstrap-server", states["broker"].address)
        assert plain.code == 1
        # The registry has what it needs, no more.
        as_registry = tmp_path / "registry.properties"
        made = read_properties(str(one.home.path / "secure" / "registry.properties"))
        as_registry.write_text("".join(f"{n.removeprefix('kafkastore.')}={v}\n" for n, v in made.items()))
        words = ("--bootstrap-server", states["broker"].address, "--command-config", str(as_registry))
        assert run("topics", "--list", *words).out == "_schemas\n"
        assert run("topics", "--delete", "--topic", "_schemas", *words).code == 1
        tokens = read_properties(str(one.home.path / "secure" / "broker.properties"))
        for secret in (
            made["kafkastore.sasl.jaas.config"].split('password="')[1][:-2],
            tokens["delegation.token.secret.key"],
            key["secret"],
            password,
        ):
            for pid in (state.pid for state in states.values()):
                assert secret.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
            for log in one.home.logs.iterdir():
                assert secret not in log.read_text(errors="replace")
    finally:
        del os.environ["MILLSTREAM_DATA_DIR"]
    assert one.stop()[0] == 0
    # Settings that the release before had made: they are completed.
    rest_file = one.home.path / "secure" / "rest.properties"
    before = rest_file.read_text()
    rest_file.write_text("".join(line for line in before.splitlines(True) if "authentication." not in line))
    (one.home.path / "secure" / "broker.properties").unlink()
    # The same certificates and users; TLS of the HTTP services is left to somebody else.
    again = up("--secure", "--plain-http").ready()
    assert all(again.service(name).address.startswith("http://") for name in ("registry", "rest", "console"))
    assert sorted(rest_file.read_text().split()) == sorted(before.split())
    assert again.stop()[0] == 0


def test_a_broker_with_data_is_not_secured_over_its_head(up: Callable[..., Up]) -> None:  # noqa: F811
    up("--only", "broker").ready().stop()
    refused = up("--only", "broker", "--secure")
    _, err = refused.process.communicate(timeout=60)
    assert refused.process.returncode == 1
    assert "has run without --secure" in err


def test_doctor_knows_certificates_and_secrets(tmp_path: Path) -> None:
    from millstream.cli.doctor_security import security
    from millstream.up.data_folders import DataFolder
    from tests.client.certificates import Authority

    home = DataFolder(tmp_path)
    assert [*security(home)] == []
    folder = tmp_path / "secure"
    folder.mkdir(mode=0o700)
    authority = Authority(folder)
    authority.pem.rename(folder / "ca.pem")
    authority.issue("broker", days=-1)
    (folder / "client.pem").write_text("nothing")
    found = {one.what: one for one in security(home)}
    assert found["Certificate ca.pem"].state == "warning"  # one day is left
    assert found["Certificate broker.pem"].state == "problem"
    assert "expired on" in found["Certificate broker.pem"].found
    assert "127.0.0.1" in found["Certificate broker.pem"].found
    assert found["Certificate client.pem"].state == "problem"
    assert found["Passwords and keys"].state == "ok"  # nobody else can enter the folder
    folder.chmod(0o755)
    (folder / "client.pem").chmod(0o644)
    assert {one.what: one for one in security(home)}["Passwords and keys"].state == "problem"
