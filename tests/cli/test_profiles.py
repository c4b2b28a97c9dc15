"""Named clusters, completion and doctor."""

import json
import os
import shlex
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from millstream.cli import profile_store
from millstream.cli.command_table import COMMANDS
from millstream.cli.completion import SHELLS, VARIABLE
from millstream.cli.doctor import examine, spark_python
from millstream.up.data_folders import DataFolder

from .conftest import Run


def test_profiles(run: Run, bootstrap: str) -> None:
    assert "There are no profiles yet" in run("profile", "list").out
    added = run(
        "profile",
        "add",
        "prod",
        "--bootstrap-server",
        bootstrap,
        "--registry",
        "http://r:8081",
        "--command-property",
        "sasl.password=hush",
    )
    assert (added.code, added.out) == (0, f"Added profile prod ({bootstrap}).\n")
    assert stat.S_IMODE(os.stat(profile_store.path()).st_mode) == 0o600
    assert run("-p", "prod", "topics", "--create", "--topic", "by-profile").code == 0
    assert "by-profile" in run("--profile=prod", "topics", "--list").out.splitlines()
    assert run("topics", "--list").code == 2
    assert run("profile", "use", "prod").code == 0
    assert "by-profile" in run("topics", "--list").out.splitlines()
    assert json.loads(run("profile", "list", "-o", "json").out) == [
        {
            "name": "prod",
            "current": True,
            "bootstrap_servers": bootstrap,
            "schema_registry_url": "http://r:8081",
        }
    ]
    assert "hush" not in run("profile", "show").out
    assert "hush" in run("profile", "show", "prod", "--secrets").out
    assert run("profile", "add", "prod", "--bootstrap-server", "x:1").code == 1
    assert run("profile", "use", "--none").code == 0
    assert run("topics", "--list").code == 2
    assert run("profile", "remove", "prod").code == 0
    assert run("-p", "prod", "topics", "--list").code == 2


def test_passwords_inside_of_addresses_are_not_printed(run: Run) -> None:
    """`list` and `show` in each style, and messages that quote an address."""
    given = {
        "bootstrap.servers": "h:1",
        "schema.registry.url": "https://ann:hush@r1:8081,https://bob:hu@/sh@r2:8081",
        "sasl.oauthbearer.token.endpoint.url": "https://idp:hush@login.example/token",
        "sasl.jaas.config": 'x required username="ann" password="hush";',
        "sasl.oauthbearer.assertion.private.key.passphrase": "hush",
        "basic.auth.user.info": "ann:hush",
    }
    profile_store.Profiles({"prod": given}, "prod").write()
    for style in ("table", "json", "yaml"):
        for command in (("list",), ("show",), ("show", "prod")):
            shown = run("profile", *command, "-o", style).out
            assert "hush" not in shown
            assert "sh@" not in shown
    assert "https://ann:[hidden]@r1:8081,https://bob:[hidden]@r2:8081" in run("profile", "show").out
    assert "https://idp:[hidden]@login.example/token" in run("profile", "show").out
    assert "https://ann:hush@r1:8081" in run("profile", "show", "--secrets").out
    wrong = run("profile", "add", "x", "--bootstrap-server", "http://ann:hush@h")
    assert wrong.code == 2
    assert "hush" not in wrong.err


def test_a_profile_in_use_does_not_follow_to_other_clusters(run: Run, monkeypatch) -> None:
    profile_store.Profiles({"a": {"bootstrap.servers": "h:1", "client.id": "secret"}}, "a").write()
    assert profile_store.chosen()["client.id"] == "secret"
    assert profile_store.chosen(servers_given=True) == {}
    assert profile_store.with_profile("other:1", {}) == {}
    monkeypatch.setenv(profile_store.CHOSEN, "a")
    assert profile_store.with_profile("other:1", {"client.id": "mine"})["client.id"] == "mine"


def test_services_started_by_hand_for_a_profile(run: Run, tmp_path: Path) -> None:
    known = {
        "bootstrap.servers": "h:1",
        "schema.registry.url": "http://r",
        "security.protocol": "SSL",
        "acks": "1",
    }
    profile_store.Profiles({"a": known}, "a").write()
    assert profile_store.service_arguments("console", ["x"]) == ["x"]  # in use, but not asked for
    profile_store.choose("a")
    words = ["--set", "bootstrap.servers=h:1", "--set", "schema.registry.url=http://r"]
    secure = ["--set", "client.security.protocol=SSL"]
    assert profile_store.service_arguments("console", ["--debug"]) == [*words, *secure, "--debug"]
    assert profile_store.service_arguments("rest", []) == [*words, *secure]
    stored = ["--set", "kafkastore.bootstrap.servers=h:1", "--set", "kafkastore.security.protocol=SSL"]
    assert profile_store.service_arguments("registry", []) == stored
    given = ["codegen", "--subject", "s"]
    assert profile_store.service_arguments("registry", given) == [
        "codegen",
        "--registry",
        "http://r",
        "--subject",
        "s",
    ]
    (tmp_path / "order.avsc").write_text('{"type": "record", "name": "Order", "fields": []}')
    assert "class Order" in run("-p", "a", "registry", "codegen", str(tmp_path / "order.avsc")).out
    assert run("-p", "a", "console", "hash-password", "eve", stdin="pw\n").out.startswith("eve:")
    done = run("-p", "a", "broker")
    assert (done.code, len(done.err.splitlines())) == (2, 1)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-p"], "-p needs the name of a profile"),
        (["-p", "nobody", "topics", "--list"], "there is no profile 'nobody'"),
        (["profile", "add", "up", "--bootstrap-server", "a:1"], "the name 'up' is taken"),
        (["profile", "add", "a b", "--bootstrap-server", "a:1"], "cannot be a name"),
        (["profile", "add", "x"], "--bootstrap-server must be specified"),
        (["profile", "add", "x", "--bootstrap-server", "a:b"], "is not an address"),
        (["profile", "use"], "name a profile, or say --none"),
        (["profile", "remove", "nobody"], "there is no profile 'nobody'"),
        (["profile", "lst"], "No such command 'lst'"),
        (["profile"], "Missing command"),
    ],
)
def test_misuse(run: Run, words: list[str], says: str) -> None:
    done = run(*words)
    assert (done.code, done.out) == (2, "")
    assert says in done.err
    assert "Traceback" not in done.err


def test_nothing_runs_for_the_profile_up(run: Run) -> None:
    done = run("-p", "up", "topics", "--list")
    assert (done.code, len(done.err.splitlines())) == (1, 1)
    assert "nothing runs in" in done.err


def test_a_damaged_file_is_said(run: Run) -> None:
    profile_store.folder().mkdir(parents=True)
    for content in ("a: [", "- 1\n- 2\n", "profiles: 3\n"):
        profile_store.path().write_text(content)
        done = run("profile", "list")
        assert (done.code, len(done.err.splitlines())) == (1, 1)
        assert str(profile_store.path()) in done.err


# --- completion ---------------------------------------------------------------------------------------------


@pytest.fixture
def complete(run: Run, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """What bash is told for a line whose last word is not finished."""

    def ask(*words: str) -> list[str]:
        with monkeypatch.context() as shell:
            shell.setenv(VARIABLE, "complete_bash")
            shell.setenv("COMP_WORDS", shlex.join(["millstream", *words]))
            shell.setenv("COMP_CWORD", str(len(words)))
            done = run()
        assert (done.code, done.err) == (0, "")
        return done.out.split()

    return ask


def test_completion(run: Run, complete: Callable[..., list[str]], bootstrap: str) -> None:
    assert complete("con") == [
        "console",
        "connect",
        "console-producer",
        "console-consumer",
        "consumer-groups",
        "configs",
    ]
    assert set(COMMANDS) == set(complete(""))
    assert set(complete("--")) == {"--profile", "--version", "--help"}
    assert complete("topics", "--par") == ["--partitions", "--partition-size-limit-per-response"]
    assert complete("topics", "de") == ["delete", "describe"]
    assert complete("topics", "--list", "-o", "") == ["json", "lines", "table", "yaml"]
    assert complete("profile", "list", "-o", "") == ["json", "table", "yaml"]
    assert complete("profile", "re") == ["remove"]
    assert complete("perf", "produce", "--record-") == ["--record-size"]
    assert complete("broker", "--pr") == ["--print-config"]
    assert complete("registry", "co") == ["codegen"]
    assert complete("up", "--only", "reg") == ["registry"]
    assert complete("logs", "reg") == ["registry"]
    assert complete("completion", "ba") == ["bash"]
    assert complete("nonsense", "") == []
    run("topics", "--create", "--topic", "completed", "--bootstrap-server", bootstrap)
    words = ["console-consumer", "--bootstrap-server", bootstrap, "--topic", "compl"]
    assert complete(*words) == ["completed"]
    run("profile", "add", "here", "--bootstrap-server", bootstrap)
    assert complete("-p", "") == ["up", "here"]
    assert complete("-p", "here", "topics", "--describe", "--topic", "complet") == ["completed"]
    assert complete("-p", "here", "topics", "describe", "--topic", "complet") == ["completed"]
    assert complete("topics", "--describe", "--topic", "complet") == []  # nobody to ask


def test_a_name_alone_loads_no_command(complete: Callable[..., list[str]]) -> None:
    loaded = "millstream.cli.topics"
    sys.modules.pop(loaded, None)
    assert "topics" in complete("to")
    assert loaded not in sys.modules
    assert complete("topics", "--alt") == ["--alter"]
    assert loaded in sys.modules


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_scripts(run: Run, shell: str) -> None:
    done = run("completion", shell)
    assert done.code == 0
    assert VARIABLE in done.out
    if shell == "bash":
        assert subprocess.run(["bash", "-n"], input=done.out, text=True, timeout=30).returncode == 0


def test_completion_for_other_shells(run: Run) -> None:
    assert run("completion", "tcsh").code == 2


# --- doctor -------------------------------------------------------------------------------------------------


def test_doctor(run: Run, tmp_path, monkeypatch) -> None:
    done = run("doctor", "-o", "json", "--data-dir", str(tmp_path))
    found = {one["what"]: one for one in json.loads(done.out)}
    assert {"Millstream", "Python", "Java", "Disk", "Open files", "Memory", "Data folder"} <= found.keys()
    assert done.code == int(any(one["state"] == "problem" for one in found.values()))
    assert all(one["cure"] for one in found.values() if one["state"] != "ok")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    (tmp_path / "file").write_text("")
    sick = {one.what: one for one in examine(DataFolder(tmp_path / "file" / "data"), 65_535)}
    assert sick["Java"].state == "warning"
    assert "JAVA_HOME" in sick["Java"].found
    assert sick["Data folder"].state == "problem"
    assert "--data-dir" in sick["Data folder"].cure
    assert sick["Port 65536"].state == "problem"
    assert run("doctor").out.rstrip().endswith(".")


def test_doctor_says_what_to_set_for_spark(tmp_path, monkeypatch) -> None:
    """`python3` on the PATH of a shell without the virtual environment."""
    pytest.importorskip("pyspark")
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    (found,) = spark_python()
    assert found.state == "warning"
    assert found.cure.startswith(f"export PYSPARK_PYTHON={sys.executable}, or activate the environment")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    (found,) = spark_python()
    assert found.state == "ok"
