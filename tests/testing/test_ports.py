"""The ports that tests give to servers which cannot choose one themselves."""

import socket
import subprocess
import sys

from tests.support import ports


def test_a_free_port_is_not_one_that_the_system_gives_to_connections() -> None:
    given = [ports.free_port() for _ in range(50)]
    assert len(set(given)) == 50
    assert all(ports.LOWEST <= port < ports.lowest_ephemeral() for port in given)


def test_a_port_on_which_somebody_listens_is_not_free() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", ports.free_port()))
        server.listen()
        assert not ports._is_free(server.getsockname()[1])


def test_a_port_that_was_given_is_given_to_no_other_process() -> None:
    first = ports.free_ports(3)
    # Nobody listens there yet, so only the lock tells.
    claim = f"from tests.support import ports; print([ports._claim({first} + n) for n in range(3)])"
    assert subprocess.check_output([sys.executable, "-c", claim], text=True) == "[False, False, False]\n"
