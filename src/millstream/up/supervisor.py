"""All services of one `up`, from the first start to the last end.

The loop looks at every process when something may have happened (a signal, a child's end, or a short while
has passed); `report` gets one line for each event that a person wants to know.
"""

import os
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from millstream import __version__
from millstream.up import forking, ports
from millstream.up.data_folders import DataFolder, Instance, ServiceState
from millstream.up.services import BROKER, SERVICES, SHARED, Service
from millstream.up.several_brokers import is_broker, is_zookeeper
from millstream.up.supervised_service import SupervisedService

BUSY_INTERVAL = 0.02
QUIET_INTERVAL = 1.0
BROKER_STOP_TIMEOUT = 30.0  # for a broker with much to flush; the others get less
SERVICE_STOP_TIMEOUT = 8.0
SLOW_START = 30.0
ROTATE_EVERY = 60.0
LOOPBACK = "127.0.0.1"
MAX_PORT = 65_535


class CannotStart(Exception):
    """The ports, or a service (`service`) that ended before it was ready."""

    def __init__(self, message: str, service: str = "") -> None:
        super().__init__(message)
        self.service = service


def choose(
    only: Sequence[str], more: Sequence[str], table: Mapping[str, Service] = SERVICES
) -> list[Service]:
    """The services of this `up`, in the order of the table; `broker` stands for all brokers, and brokers do
    not go without their ZooKeeper."""
    for name in (*only, *more):
        if name not in table:
            raise CannotStart(f"there is no service '{name}'; there are {', '.join(table)}")
        if is_broker(name) and name != BROKER.name:
            raise CannotStart(f"{name} does not start alone: `broker` stands for all brokers")
    only, more = [_with_cluster(names, table) for names in (only, more)]
    return [
        service
        for service in table.values()
        if service.name in more or (service.name in only if only else service.default)
    ]


def _with_cluster(names: Sequence[str], table: Mapping[str, Service]) -> list[str]:
    if not any(map(is_broker, names)):
        return list(names)
    return [*names, *(name for name in table if is_broker(name) or is_zookeeper(name))]


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class Supervisor:
    def __init__(
        self,
        home: DataFolder,
        chosen: Sequence[Service],
        *,
        host: str = "127.0.0.1",
        port_base: int | None = None,
        settings: Mapping[str, Mapping[str, str]] | None = None,
        table: Mapping[str, Service] = SERVICES,
        ephemeral: bool = False,
        report: Callable[[str], None] = print,
    ) -> None:
        self._home = home
        self._report = report
        self._stopping = 0
        self._loaded = False
        self._reserved: list[socket.socket] = []
        self._rotate_at = time.monotonic() + ROTATE_EVERY
        self._slow: set[str] = set()
        self._table = table
        numbers = self._reserve_ports(host, port_base, {service.name for service in chosen})
        self.instance = Instance(str(home.path), os.getpid(), __version__, time.time(), ephemeral)
        everywhere = host in ("0.0.0.0", "::")  # noqa: S104
        shown_host = LOOPBACK if everywhere else host
        advertised = socket.gethostname() if everywhere else bracketed(host)  # what other machines know us by
        addresses = {
            service.name: service.address(LOOPBACK if service.local else shown_host, numbers[service.name])
            for service in table.values()
        }
        cluster = self._cluster_addresses(host, shown_host, addresses)
        metrics_ports = self._reserve_metrics_ports(host, port_base, chosen)
        metrics = {
            service.name: f"{scheme}://{bracketed(shown_host)}:{port}/metrics"
            for service in chosen
            for port in [metrics_ports.get(service.name, numbers[service.name])]
            for scheme in ["http" if service.metrics_port else service.scheme or "http"]
        }
        self.supervised: list[SupervisedService] = []
        for service in chosen:
            what = f"{service.what}; {metrics[service.name]}" if service.metrics_port else service.what
            state = ServiceState(service.name, what, addresses[service.name])
            self.instance.services.append(state)
            own = home.path / service.name
            values = {
                **addresses,
                **cluster,
                "plain_host": LOOPBACK if service.local else host,
                "host": bracketed(host),
                "advertised": advertised,
                "port": numbers[service.name],
                "metrics_port": metrics_ports.get(service.name, 0),
                "metrics": ",".join(f"{name}={url}" for name, url in metrics.items() if name != service.name),
                "data": own,
                "driver": home.path / "driver",
            }
            wanted = {name: text.format_map(values) for name, text in service.settings.items()}
            given = settings or {}
            if is_broker(service.name):
                wanted.update(given.get("broker", {}))
            wanted.update(given.get(service.name, {}))
            words = [service.command or service.name, *service.extra]
            for name, text in wanted.items():
                words += ["--set", f"{name}={text}"]
            self.supervised.append(SupervisedService(service, words, home.log_of(service.name), state))

    def run(self, ready: Callable[[Instance], None]) -> int:
        """Start all, call `ready` once, look after them until a signal comes. Returns the exit code."""
        with self._signals() as wait:
            try:
                for supervised in sorted(self.supervised, key=lambda supervised: supervised.service.forked):
                    if supervised.service.forked:
                        self._load_shared()
                    if not self._stopping:
                        supervised.start()
                self._home.publish(self.instance)
                self._home.announce()
                while not self._stopping:
                    self._check_all(ready)
                    busy = any(
                        supervised.state.state in ("waiting", "starting") for supervised in self.supervised
                    )
                    wait(BUSY_INTERVAL if busy else self._next_interval())
                return 0
            finally:
                self._stop(wait)

    def _load_shared(self) -> None:
        """Once, before the first fork. The broker, which is not forked, starts meanwhile."""
        if forking.possible() and not self._loaded:
            self._loaded = True
            forking.load(SHARED, lambda: bool(self._stopping))

    # --- one round ------------------------------------------------------------------------------------------

    def _check_all(self, ready: Callable[[Instance], None]) -> None:
        now = time.monotonic()
        changed = False
        for supervised in self.supervised:
            if supervised.state.state == "waiting" and self._may_begin(supervised.service):
                supervised.release()
                changed = True
            event = supervised.poll(now)
            changed = changed or bool(event)
            self._report_event(supervised, event)
            self._notice_slow_start(supervised)
        if changed:
            all_ready = all(supervised.state.state == "ready" for supervised in self.supervised)
            first_time = all_ready and not self.instance.ready
            self.instance.ready = self.instance.ready or all_ready
            self._home.publish(self.instance)
            if first_time:
                ready(self.instance)
        if now > self._rotate_at:
            self._rotate_at = now + ROTATE_EVERY
            for supervised in self.supervised:
                supervised.rotate_log()

    def _report_event(self, supervised: SupervisedService, event: str) -> None:
        name, last_end = supervised.service.display_name, supervised.state.last_end
        if event == "ended":
            if not supervised.was_ready:
                service = supervised.service.name
                raise CannotStart(f"the {name} ended with {last_end} before it was ready", service)
            self._report(f"the {name} ended with {last_end}; starting it again in {supervised.pause:g} s")
        elif event == "ready" and self.instance.ready:
            self._report(f"the {name} is ready again")

    def _may_begin(self, service: Service) -> bool:
        states = {supervised.service.name: supervised.state.state for supervised in self.supervised}
        return all(states.get(name, "ready") == "ready" for name in service.needs)

    def _next_interval(self) -> float:
        return (
            BUSY_INTERVAL * 5
            if any(supervised.state.state == "pausing" for supervised in self.supervised)
            else QUIET_INTERVAL
        )

    def _notice_slow_start(self, supervised: SupervisedService) -> None:
        name = supervised.service.name
        late = supervised.state.state == "starting" and time.time() - supervised.state.since > SLOW_START
        if late and name not in self._slow:
            self._slow.add(name)
            title = supervised.service.display_name
            self._report(f"the {title} is not ready after {SLOW_START:g} s; its log is {supervised.log}")

    # --- ports ----------------------------------------------------------------------------------------------

    def _reserve_ports(self, host: str, base: int | None, chosen: set[str]) -> dict[str, int]:
        """A port for each service; those that are to run here are tried and reserved."""
        found: dict[str, int] = {}
        problems: list[str] = []
        for service in self._table.values():
            wanted = service.port if base is None else base + service.offset if base else 0
            if wanted > MAX_PORT:
                raise CannotStart(f"port {wanted} for the {service.display_name}: ports end at {MAX_PORT}")
            if service.name not in chosen:
                found[service.name] = wanted or service.port
                continue
            try:
                found[service.name], reserved = ports.reserve(LOOPBACK if service.local else host, wanted)
                if reserved is not None:
                    self._reserved.append(reserved)
            except ports.PortTaken as error:
                problems.append(f"the {service.display_name} cannot have its port: {error}")
        if problems:
            self._release_ports()
            raise CannotStart("\n".join(problems))
        return found

    def _reserve_metrics_ports(
        self, host: str, base: int | None, chosen: Sequence[Service]
    ) -> dict[str, int]:
        """Ports for metrics alone. Nobody has to know them by heart, so one that is taken is replaced by any
        other."""
        found: dict[str, int] = {}
        for service in chosen:
            if service.metrics_port is None:
                continue
            port, offset = service.metrics_port
            wanted = port if base is None else base + offset if base else 0
            try:
                found[service.name], reserved = ports.reserve(host, wanted if wanted <= MAX_PORT else 0)
            except ports.PortTaken:
                found[service.name], reserved = ports.reserve(host, 0)
            if reserved is not None:
                self._reserved.append(reserved)
        return found

    def _cluster_addresses(self, host: str, shown_host: str, addresses: Mapping[str, str]) -> dict[str, str]:
        """Where the brokers are, for their clients, and the ZooKeepers, for the brokers and each other."""
        brokers = [address for name, address in addresses.items() if is_broker(name)]
        zookeepers = [address for name, address in addresses.items() if is_zookeeper(name)]
        found = {"broker": ",".join(brokers), "zookeepers": ",".join(zookeepers)}
        if any(service.local for service in self._table.values() if is_zookeeper(service.name)):
            host = shown_host = LOOPBACK
        if len(zookeepers) > 1:
            for number in range(1, len(zookeepers) + 1):
                pair = []
                for _ in range(2):  # one for followers, one for elections; nobody has to know them
                    port, reserved = ports.reserve(host, 0)
                    pair.append(str(port))
                    if reserved is not None:
                        self._reserved.append(reserved)
                found[f"zookeeper_server_{number}"] = ":".join((bracketed(shown_host), *pair))
        return found

    def _release_ports(self) -> None:
        for reserved in self._reserved:
            reserved.close()
        self._reserved.clear()

    # --- the end --------------------------------------------------------------------------------------------

    def _stop(self, wait: Callable[[float], None]) -> None:
        """Those that need others first, so that they can say goodbye to them: services, then brokers, then
        ZooKeeper."""
        left = list(self.supervised)
        while left:
            needed = {name for supervised in left for name in supervised.service.needs}
            group = [supervised for supervised in left if supervised.service.name not in needed]
            left = [supervised for supervised in left if supervised not in group]
            flushes = any(is_broker(supervised.service.name) for supervised in group)
            for supervised in group:
                supervised.stop()
            deadline = time.monotonic() + (BROKER_STOP_TIMEOUT if flushes else SERVICE_STOP_TIMEOUT)
            while not all([supervised.ended_by_now() for supervised in group]):
                if time.monotonic() > deadline or self._stopping > 1:
                    for supervised in group:
                        if not supervised.ended_by_now():
                            self._report(f"the {supervised.service.display_name} does not stop: killing it")
                            supervised.kill()
                wait(BUSY_INTERVAL)
        self._release_ports()

    @contextmanager
    def _signals(self) -> Iterator[Callable[[float], None]]:
        """Ctrl-C, SIGTERM and SIGHUP ask for the end, a second one for a quick end; gives a wait that they
        cut short."""
        wakeup, notifier = socket.socketpair()
        wakeup.setblocking(False)
        notifier.setblocking(False)
        before_fd = signal.set_wakeup_fd(notifier.fileno(), warn_on_full_buffer=False)

        def end(number: int, frame: FrameType | None) -> None:
            self._stopping += 1

        handlers: dict[int, Any] = {
            number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        }
        handlers[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda number, frame: None)

        def wait(seconds: float) -> None:
            if select.select([wakeup], [], [], seconds)[0]:
                try:
                    wakeup.recv(4096)
                except BlockingIOError:
                    pass

        try:
            yield wait
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(before_fd)
            wakeup.close()
            notifier.close()
