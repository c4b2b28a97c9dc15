"""The ports that tests give to servers which cannot choose one themselves."""

import socket

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
