"""The pytest plugin, as a project that installed Millstream meets it: nothing to import, one fixture to ask
for."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
FAKE = [sys.executable, str(Path(__file__).with_name("fake_broker.py"))]


def test_the_fixture_gives_one_running_broker_per_session(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        f"""
        import pytest
        from millstream.testing import Broker

        plain = Broker.__init__
        def stand_in(self, *arguments, **options):
            plain(self, *arguments, command={FAKE!r}, **options)
        Broker.__init__ = stand_in

        @pytest.fixture(scope="session")
        def millstream_settings():
            return {{"num.partitions": 7}}
        """
    )
    pytester.makepyfile(
        """
        import socket
        seen = []

        def test_first(millstream_broker):
            assert millstream_broker.settings["num.partitions"] == 7
            socket.create_connection((millstream_broker.host, millstream_broker.port)).close()
            seen.append(millstream_broker)

        def test_second(millstream_broker):
            assert seen == [millstream_broker]
        """
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=2)


def test_loading_the_plugin_loads_nothing_heavy() -> None:
    code = "import sys, pytest; import millstream.testing.pytest_plugin; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    rooms = {
        name
        for name in loaded
        if name.startswith("millstream.") and not name.startswith("millstream.testing")
    }
    assert rooms == set()
    assert not {"kio", "uvloop", "asyncio", "crc32c", "cramjam", "typer", "hypothesis"} & set(loaded)
