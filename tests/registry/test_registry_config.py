"""Settings: Confluent's names, checked; the page that describes them; what happens with bad ones."""

import subprocess
import sys
from pathlib import Path

import pytest

from millstream.registry.main import main
from millstream.registry.registry_config import KEYS, RegistryConfig
from millstream.settings.values import InvalidSetting

PAGE = Path(__file__).parents[2] / "docs" / "registry.md"


def test_all_settings_are_described() -> None:
    page = PAGE.read_text()
    missing = [
        name for name, one in KEYS.items() if f"| `{name}` |" not in page or one.documentation not in page
    ]
    assert missing == []


def test_values() -> None:
    settings = RegistryConfig(
        {
            "listeners": "http://0.0.0.0:8081,https://[::1]:8443",
            "host.name": "one.example.org",
            "inter.instance.protocol": "https",
            "schema.compatibility.level": "full_transitive",
            "kafkastore.bootstrap.servers": "PLAINTEXT://a:1,b:2",
            "kafkastore.request.timeout.ms": "1000",
            "leader.eligibility": "false",
            "nonsense": "x",
        }
    )
    assert [(one.scheme, one.port) for one in settings.listeners] == [("http", 8081), ("https", 8443)]
    service = settings.service([8081, 8443])
    assert service.me.url == "https://one.example.org:8443" and not service.me.eligible
    assert service.level == "FULL_TRANSITIVE"
    assert service.client.bootstrap == (("a", 1), ("b", 2)) and service.client.request_timeout == 1.0
    assert settings.unknown == ["nonsense"]


@pytest.mark.parametrize(
    "given",
    [
        {"listeners": "ftp://x:1"},
        {"listeners": "8081"},
        {"schema.compatibility.level": "sometimes"},
        {"kafkastore.timeout.ms": "soon"},
        {"mode.mutability": "maybe"},
    ],
)
def test_values_that_make_no_sense(given: dict[str, str]) -> None:
    with pytest.raises(InvalidSetting):
        RegistryConfig(given).service([1])


def test_the_program_says_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--set", "listeners=nowhere"]) == 1
    assert "listeners" in capsys.readouterr().err
    assert main(["--set", "listeners=https://127.0.0.1:0"]) == 1
    assert "ssl.keystore.location" in capsys.readouterr().err
    assert main(["--config", "/does/not/exist"]) == 1


def test_no_cluster_there() -> None:
    command = [sys.executable, "-m", "millstream", "registry", "--set", "listeners=http://127.0.0.1:0"]
    command += [
        "--set",
        "kafkastore.bootstrap.servers=127.0.0.1:1",
        "--set",
        "kafkastore.init.timeout.ms=500",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "millstream registry:" in done.stderr and "Traceback" not in done.stderr
