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
from millstream.up.instances import Home, Instance, ServiceState
from millstream.up.process import Supervised
from millstream.up.services import SERVICES, SHARED, Service

BUSY_LOOK = 0.02
QUIET_LOOK = 1.0
STOP_PATIENCE = 30.0  # for a broker with much to flush; the others get less
SERVICE_PATIENCE = 8.0
SLOW_START = 30.0
LOG_LOOK = 60.0
PORTS = 65_535


class CannotStart(Exception):
    """The ports, or a service (`service`) that ended before it was ready."""

    def __init__(self, message: str, service: str = "") -> None:
        super().__init__(message)
        self.service = service


def choose(only: Sequence[str], more: Sequence[str]) -> list[Service]:
    """The services of this `up`, in the order of the table."""
    for name in (*only, *more):
        if name not in SERVICES:
            raise CannotStart(f"there is no service '{name}'; there are {', '.join(SERVICES)}")
    return [
        service
        for service in SERVICES.values()
        if service.name in more or (service.name in only if only else service.default)
    ]


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class Supervisor:
    def __init__(
        self,
        home: Home,
        chosen: Sequence[Service],
        *,
        host: str = "127.0.0.1",
        port_base: int | None = None,
        settings: Mapping[str, Mapping[str, str]] | None = None,
        ephemeral: bool = False,
        report: Callable[[str], None] = print,
    ) -> None:
        self._home = home
        self._report = report
        self._stopping = 0
        self._loaded = False
        self._kept: list[socket.socket] = []
        self._cut_at = time.monotonic() + LOG_LOOK
        self._slow: set[str] = set()
        numbers = self._take_ports(host, port_base, {service.name for service in chosen})
        self.instance = Instance(str(home.path), os.getpid(), __version__, time.time(), ephemeral)
        everywhere = host in ("0.0.0.0", "::")  # noqa: S104
        shown_host = "127.0.0.1" if everywhere else host
        advertised = socket.gethostname() if everywhere else bracketed(host)  # what other machines know us by
        places = {s.name: s.address(shown_host, numbers[s.name]) for s in SERVICES.values()}
        asides = self._take_asides(host, port_base, chosen)
        metrics = {
            service.name: f"http://{bracketed(shown_host)}:{asides.get(service.name, numbers[service.name])}/metrics"
            for service in chosen
        }
        self.supervised: list[Supervised] = []
        for service in chosen:
            what = f"{service.what}; {metrics[service.name]}" if service.aside else service.what
            state = ServiceState(service.name, what, places[service.name])
            self.instance.services.append(state)
            own = home.path / service.name
            fill = {
                **places,
                "host": bracketed(host),
                "advertised": advertised,
                "port": numbers[service.name],
                "aside": asides.get(service.name, 0),
                "metrics": ",".join(f"{name}={url}" for name, url in metrics.items() if name != service.name),
                "data": own,
            }
            wanted = {name: text.format_map(fill) for name, text in service.settings.items()}
            wanted.update((settings or {}).get(service.name, {}))
            words = [service.name, *service.extra]
            for name, text in wanted.items():
                words += ["--set", f"{name}={text}"]
            self.supervised.append(Supervised(service, words, home.log_of(service.name), state))

    def run(self, ready: Callable[[Instance], None]) -> int:
        """Start all, call `ready` once, look after them until a signal comes. Returns the exit code."""
        with self._signals() as wait:
            try:
                for one in sorted(self.supervised, key=lambda one: one.service.forked):
                    if one.service.forked:
                        self._load_shared()
                    if not self._stopping:
                        one.start()
                self._home.publish(self.instance)
                self._home.announce()
                while not self._stopping:
                    self._round(ready)
                    busy = any(one.state.state in ("waiting", "starting") for one in self.supervised)
                    wait(BUSY_LOOK if busy else self._next_look())
                return 0
            finally:
                self._stop(wait)

    def _load_shared(self) -> None:
        """Once, before the first fork. The broker, which is not forked, starts meanwhile."""
        if forking.possible() and not self._loaded:
            self._loaded = True
            forking.load(SHARED, lambda: bool(self._stopping))

    # --- one round ------------------------------------------------------------------------------------------

    def _round(self, ready: Callable[[Instance], None]) -> None:
        now = time.monotonic()
        changed = False
        for one in self.supervised:
            if one.state.state == "waiting" and self._may_begin(one.service):
                one.release()
                changed = True
            event = one.look(now)
            changed = changed or bool(event)
            if event == "ended":
                if not one.was_ready:
                    raise CannotStart(
                        f"the {one.service.called} ended with {one.state.last_end} before it was ready",
                        one.service.name,
                    )
                self._report(
                    f"the {one.service.called} ended with {one.state.last_end}; starting it again in "
                    f"{one.pause:g} s"
                )
            elif event == "ready" and self.instance.ready:
                self._report(f"the {one.service.called} is ready again")
            self._notice_slow_start(one)
        if changed:
            if not self.instance.ready and all(one.state.state == "ready" for one in self.supervised):
                self.instance.ready = True
                self._home.publish(self.instance)
                ready(self.instance)
            else:
                self._home.publish(self.instance)
        if now > self._cut_at:
            self._cut_at = now + LOG_LOOK
            for one in self.supervised:
                one.cut_log()

    def _may_begin(self, service: Service) -> bool:
        states = {one.service.name: one.state.state for one in self.supervised}
        return all(states.get(name, "ready") == "ready" for name in service.needs)

    def _next_look(self) -> float:
        return BUSY_LOOK * 5 if any(one.state.state == "pausing" for one in self.supervised) else QUIET_LOOK

    def _notice_slow_start(self, one: Supervised) -> None:
        name = one.service.name
        late = one.state.state == "starting" and time.time() - one.state.since > SLOW_START
        if late and name not in self._slow:
            self._slow.add(name)
            self._report(
                f"the {one.service.called} is not ready after {SLOW_START:g} s; its log is {one.log}"
            )

    # --- ports ----------------------------------------------------------------------------------------------

    def _take_ports(self, host: str, base: int | None, chosen: set[str]) -> dict[str, int]:
        """A port for each service; those that are to run here are tried and kept."""
        found: dict[str, int] = {}
        problems: list[str] = []
        for service in SERVICES.values():
            wanted = service.port if base is None else base + service.offset if base else 0
            if wanted > PORTS:
                raise CannotStart(f"port {wanted} for the {service.called}: ports end at {PORTS}")
            if service.name not in chosen:
                found[service.name] = wanted or service.port
                continue
            try:
                found[service.name], kept = ports.reserve(host, wanted)
                if kept is not None:
                    self._kept.append(kept)
            except ports.PortTaken as error:
                problems.append(f"the {service.called} cannot have its port: {error}")
        if problems:
            self._release_ports()
            raise CannotStart("\n".join(problems))
        return found

    def _take_asides(self, host: str, base: int | None, chosen: Sequence[Service]) -> dict[str, int]:
        """Ports for metrics alone. Nobody has to know them by heart, so one that is taken is replaced by any
        other."""
        found: dict[str, int] = {}
        for service in chosen:
            if service.aside is None:
                continue
            port, offset = service.aside
            wanted = port if base is None else base + offset if base else 0
            try:
                found[service.name], kept = ports.reserve(host, wanted if wanted <= PORTS else 0)
            except ports.PortTaken:
                found[service.name], kept = ports.reserve(host, 0)
            if kept is not None:
                self._kept.append(kept)
        return found

    def _release_ports(self) -> None:
        for kept in self._kept:
            kept.close()
        self._kept.clear()

    # --- the end --------------------------------------------------------------------------------------------

    def _stop(self, wait: Callable[[float], None]) -> None:
        """Those that need others first, so that they can say goodbye to them."""
        needed = {name for one in self.supervised for name in one.service.needs}
        first = [one for one in self.supervised if one.service.name not in needed]
        last = [one for one in self.supervised if one.service.name in needed]
        for group, patience in ((first, SERVICE_PATIENCE), (last, STOP_PATIENCE)):
            for one in group:
                one.stop()
            deadline = time.monotonic() + patience
            while not all([one.ended_by_now() for one in group]):
                if time.monotonic() > deadline or self._stopping > 1:
                    for one in group:
                        if not one.ended_by_now():
                            self._report(f"the {one.service.called} does not stop: killing it")
                            one.kill()
                wait(BUSY_LOOK)
        self._release_ports()

    @contextmanager
    def _signals(self) -> Iterator[Callable[[float], None]]:
        """Ctrl-C, SIGTERM and SIGHUP ask for the end, a second one for a quick end; gives a wait that they
        cut short."""
        mine, kernels = socket.socketpair()
        mine.setblocking(False)
        kernels.setblocking(False)
        before_fd = signal.set_wakeup_fd(kernels.fileno(), warn_on_full_buffer=False)

        def end(number: int, frame: FrameType | None) -> None:
            self._stopping += 1

        handlers: dict[int, Any] = {
            number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        }
        handlers[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda number, frame: None)

        def wait(seconds: float) -> None:
            if select.select([mine], [], [], seconds)[0]:
                try:
                    mine.recv(4096)
                except BlockingIOError:
                    pass

        try:
            yield wait
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(before_fd)
            mine.close()
            kernels.close()
