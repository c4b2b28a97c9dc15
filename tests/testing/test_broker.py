"""millstream.testing.Broker: the child process, its port, its folder and its end. Against a stand-in for the
broker."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from millstream.testing import Broker, BrokerFailed
from tests.support.waiting import wait_until

FAKE = [sys.executable, str(Path(__file__).with_name("fake_broker.py"))]


def fake(**settings: object) -> Broker:
    return Broker({"fake." + name.replace("_", "."): value for name, value in settings.items()}, command=FAKE)


def who_answers(broker: Broker) -> int:
    with socket.create_connection((broker.host, broker.port), timeout=60) as connection:
        return int(connection.recv(100))


def wait_until_gone(pid: int) -> None:
    def gone() -> bool:
        try:
            return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    wait_until(gone, f"process {pid} is still there")


def test_it_serves_inside_the_with_and_is_gone_after_it() -> None:
    with fake() as broker:
        assert broker.bootstrap_servers == f"127.0.0.1:{broker.port}"
        assert who_answers(broker) == broker.pid
        assert "ready id=1" in broker.log
        folder = broker.data_dir.parent
        assert folder.exists()
    assert not broker.running
    assert broker.returncode == 0
    assert not folder.exists()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((broker.host, broker.port), timeout=60)


def test_many_at_once_get_ports_of_their_own() -> None:
    brokers = [fake() for _ in range(4)]
    try:
        for broker in brokers:
            broker.start(wait=False)
        for broker in brokers:
            broker.wait_ready()
        assert len({broker.port for broker in brokers}) == 4
        assert [who_answers(broker) for broker in brokers] == [broker.pid for broker in brokers]
    finally:
        for broker in brokers:
            broker.close()


def test_a_folder_given_by_the_user_stays(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "mine", command=FAKE) as broker:
        pid = broker.pid
    assert (tmp_path / "mine" / "starts").read_text() == f"{pid}\n"


def test_restart_keeps_port_and_data() -> None:
    with fake() as broker:
        port, first = broker.port, broker.pid
        broker.restart()
        assert broker.port == port
        assert broker.pid != first
        assert who_answers(broker) == broker.pid
        broker.kill()
        assert broker.returncode == -signal.SIGKILL
        broker.start()
        assert broker.port == port
        assert len((broker.data_dir / "starts").read_text().split()) == 3


@pytest.mark.skipif(sys.platform != "linux", reason="ports are reserved on Linux only")
def test_nobody_is_given_the_port_while_the_broker_is_down() -> None:
    with fake() as broker:
        broker.kill()
        with socket.socket() as intruder, pytest.raises(OSError, match="in use"):
            intruder.bind((broker.host, broker.port))
        broker.start()
        assert who_answers(broker) == broker.pid


def test_paused_it_answers_nothing_until_resumed() -> None:
    with fake() as broker:
        broker.pause()
        with socket.create_connection((broker.host, broker.port), timeout=60) as connection:
            connection.settimeout(0.2)
            with pytest.raises(TimeoutError):
                connection.recv(100)
            broker.resume()
            connection.settimeout(5)
            assert int(connection.recv(100)) == broker.pid
        broker.pause()  # and a paused broker still stops cleanly at the end


def test_a_broker_that_ends_early_is_an_error_with_its_output() -> None:
    with pytest.raises(BrokerFailed, match=r"(?s)ended with 3 .*no room at the inn"):
        fake(exit=3).__enter__()


def test_a_broker_that_is_never_ready_is_an_error() -> None:
    broker = fake(silent=True)
    broker.start_timeout = 0.5
    with pytest.raises(BrokerFailed, match="not ready after"):
        broker.__enter__()
    assert not broker.running


def test_an_unclean_end_is_an_error() -> None:
    with pytest.raises(BrokerFailed, match="ended with 7 after SIGTERM"), fake(stop_code=7):
        pass
    broker = fake(stubborn=True).start()
    with pytest.raises(BrokerFailed, match="had not stopped"):
        broker.stop(timeout=0.2)
    assert not broker.running
    broker.close()


def test_it_cannot_be_started_twice_and_has_no_address_before_it_started() -> None:
    broker = fake()
    with pytest.raises(RuntimeError, match="before its first start"):
        _ = broker.port
    with broker, pytest.raises(RuntimeError, match="runs already"):
        broker.start()


PARENT = """
import os, signal, sys, threading, time
from millstream.testing import Broker
# A shell that runs the tests in the background has SIGINT ignored, which children inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)
broker = Broker(command=[sys.executable, {fake!r}])
# The thread that starts it ends at once: that is not the end of the parent.
starter = threading.Thread(target=broker.start)
starter.start()
starter.join()
if {paused}:
    broker.pause()
if {forks} and os.fork() == 0:
    time.sleep(30)
    os._exit(0)
print(broker.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(("paused", "forks"), [(False, False), (True, False), (False, True)])
def test_it_ends_with_its_parent(how: signal.Signals, paused: bool, forks: bool) -> None:
    code = PARENT.format(fake=FAKE[1], paused=paused, forks=forks)
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as parent:
        try:
            assert parent.stdout is not None
            pid = int(parent.stdout.readline())
            assert psutil.pid_exists(pid)
            # Were it bound to the thread, it would end now. Nothing tells that it will not.
            time.sleep(0.1)
            assert psutil.pid_exists(pid), "it ended with the thread that started it"
            parent.send_signal(how)
            parent.wait(60)
            wait_until_gone(pid)
        finally:
            os.killpg(parent.pid, signal.SIGKILL) if forks else parent.kill()
