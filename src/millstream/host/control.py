"""A host that belongs to another process: HTTP services hand their applications to a driver child.

`ControlServer` is in the process that has the host, `RemoteHost` in the service: to an application it is a
host like any other. Whatever goes wrong with an application goes wrong in the driver; the service only hears
of it. Both sides know each other by the host's secret (`link`).

Applications belong to the connection that they came by. When it ends, they are removed, each unit with a last
commit: a service that is started again hands them over again. When the driver dies, the service starts
another one (`driver`) and hands all of its applications to that.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import itertools
import logging
import pickle
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from millstream.host.call_server import Call, CallServer
from millstream.host.link import Link, LinkClosed, Message
from millstream.host.planner_server import ignore
from millstream.host.unit import Application, Ended, UnitId, UnitListener, UnitState, UnitStatus

log = logging.getLogger("millstream.host")

CALL_SECONDS = 60.0
RECONNECT_PAUSE = 0.2
REMOVE_SECONDS = 10.0


class HostGone(LinkClosed):
    """The host has ended, or is being started again: nothing runs there."""


class AnyHost(Protocol):
    """What `Host`, `LocalHost` and `RemoteHost` have in common."""

    def add(self, application: Application, listener: UnitListener = ...) -> None: ...

    def set_units(
        self,
        application: str,
        names: Iterable[str],
        stateful: Iterable[str] = (),
        *,
        waiting: Iterable[str] | None = None,
        dedicated: Iterable[str] | None = None,
    ) -> None: ...

    def restart(self, application: str, name: str) -> None: ...

    def remove(self, application: str, timeout: float = ...) -> bool: ...

    def remove_all(self, applications: Iterable[str], timeout: float) -> dict[str, Ended]: ...

    def states(self, application: str) -> dict[str, UnitState]: ...

    def states_of(self, applications: Iterable[str]) -> dict[str, dict[str, UnitState]]: ...


class ControlServer(CallServer):
    """Serves a host to other processes of this machine."""

    def __init__(self, host: AnyHost, secret: bytes, address: str = "127.0.0.1") -> None:
        self._host = host
        super().__init__("host-control", secret, address)

    @contextlib.contextmanager
    def connection(self, link: Link) -> Iterator[Call]:
        mine: set[str] = set()
        try:
            yield functools.partial(self._call, link, mine)
        finally:
            self._host.remove_all(mine, REMOVE_SECONDS)

    def _call(self, link: Link, mine: set[str], name: str, arguments: dict[str, Any]) -> Any:
        host = self._host
        if name == "add":
            content = base64.b64decode(arguments["content"])
            application: Application = pickle.loads(content)  # noqa: S301 - it knows the secret

            def report(unit_id: UnitId, state: UnitState) -> None:
                with contextlib.suppress(LinkClosed):
                    link.send({"unit": unit_id, "state": _packed(state)})

            if application.id in mine and hasattr(host, "replace"):
                host.replace(application, report)
            else:
                host.add(application, report)
            mine.add(application.id)
            return None
        if name == "states_of":
            found = host.states_of([one for one in arguments["applications"] if one in mine])
            return {one: _all_packed(states) for one, states in found.items()}
        if name == "remove_all":
            leaving = [one for one in arguments["applications"] if one in mine]
            mine.difference_update(leaving)
            ended = host.remove_all(leaving, arguments["timeout"])
            return {
                one: [in_time, {unit: asdict(status) for unit, status in statuses.items()}]
                for one, (in_time, statuses) in ended.items()
            }
        if arguments["application"] not in mine:
            raise ValueError(f"{arguments['application']} is not an application of this connection")
        if name not in ("set_units", "restart"):
            raise ValueError(f"{name} is no call")
        return getattr(host, name)(**arguments)


@dataclass(slots=True)
class _Call:
    done: threading.Event
    answer: Message | None = None


@dataclass(slots=True)
class _Known:
    application: Application
    listener: UnitListener


class RemoteHost:
    """A host in another process. `connect` makes a link to it, and starts it if it does not run; it is
    called for the first application, and again when the host is gone."""

    lost: str | None = None  # another driver is started instead

    def __init__(self, connect: Callable[[], Link]) -> None:
        self._connect = connect
        self._link: Link | None = None
        self._known: dict[str, _Known] = {}
        self._calls: dict[int, _Call] = {}
        self._numbers = itertools.count()
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._news: queue.SimpleQueue[tuple[UnitId, UnitState] | None] = queue.SimpleQueue()
        threading.Thread(target=self._tell, name="host-remote-listeners", daemon=True).start()

    def add(self, application: Application, listener: UnitListener = ignore) -> None:
        with self._lock:
            self._known[application.id] = _Known(application, listener)
            if self._link is None:
                self._open()
                return  # with all that is known
        self._hand_over(application)

    replace = add

    def set_units(
        self,
        application: str,
        names: Iterable[str],
        stateful: Iterable[str] = (),
        *,
        waiting: Iterable[str] | None = None,
        dedicated: Iterable[str] | None = None,
    ) -> None:
        with self._lock:
            known = self._known[application]
            new = known.application = known.application.with_units(names, stateful, waiting, dedicated)
        self._call(
            "set_units",
            application=application,
            names=new.units,
            stateful=sorted(new.stateful),
            waiting=sorted(new.waiting),
            dedicated=sorted(new.dedicated),
        )

    def restart(self, application: str, name: str) -> None:
        self._call("restart", application=application, name=name)

    def remove(self, application: str, timeout: float = REMOVE_SECONDS) -> bool:
        return self.remove_all([application], timeout)[application].in_time

    def remove_all(self, applications: Iterable[str], timeout: float = REMOVE_SECONDS) -> dict[str, Ended]:
        found = dict.fromkeys(applications, Ended(True, {}))
        with self._lock:
            leaving = [one for one in found if self._known.pop(one, None) is not None]
        if leaving:
            with contextlib.suppress(HostGone):  # the next host does not hear of them
                answer = self._call("remove_all", applications=leaving, timeout=timeout)
                for one, (in_time, statuses) in answer.items():
                    units = {unit: UnitStatus(**status) for unit, status in statuses.items()}
                    found[one] = Ended(in_time, units)
        return found

    def states(self, application: str) -> dict[str, UnitState]:
        """Of what runs there: nothing of an application that was removed, or while the host is away."""
        return self.states_of([application])[application]

    def states_of(self, applications: Iterable[str]) -> dict[str, dict[str, UnitState]]:
        """Of several with one call: whoever looks after fifty would wake the host fifty times."""
        wanted = list(applications)
        try:
            found = self._call("states_of", applications=wanted)
        except HostGone:
            found = {}
        return {one: {name: _unpacked(state) for name, state in found.get(one, {}).items()} for one in wanted}

    def close(self) -> None:
        """The host removes what was handed to it."""
        self._closed.set()
        self._news.put(None)
        with self._lock:
            if self._link is not None:
                self._link.shut()

    # --- the connection -------------------------------------------------------------------------------------

    def _open(self) -> None:
        link = self._connect()
        self._link = link
        threading.Thread(target=self._listen, args=(link,), name="host-remote", daemon=True).start()
        for known in list(self._known.values()):
            self._hand_over(known.application)

    def _hand_over(self, application: Application) -> None:
        self._call("add", content=base64.b64encode(pickle.dumps(application)).decode())

    def _call(self, name: str, /, **arguments: Any) -> Any:
        link = self._link
        if link is None:
            raise HostGone("the host is being started")
        number, call = next(self._numbers), _Call(threading.Event())
        self._calls[number] = call
        try:
            try:
                link.send({"number": number, "call": name, "arguments": arguments})
            except LinkClosed as error:
                raise HostGone(str(error)) from None
            if not call.done.wait(CALL_SECONDS):
                raise LinkClosed(f"the host has not answered {name} within {CALL_SECONDS:.0f} s")
        finally:
            del self._calls[number]
        if call.answer is None:
            raise HostGone("the host is gone")
        if "error" in call.answer:
            raise RuntimeError(call.answer["error"])
        return call.answer["result"]

    def _listen(self, link: Link) -> None:
        try:
            while True:
                message = link.receive()
                if "answer" in message:
                    call = self._calls.get(message["answer"])
                    if call is not None:
                        call.answer = message
                        call.done.set()
                else:
                    self._news.put((UnitId(*message["unit"]), _unpacked(message["state"])))
        except LinkClosed:
            pass
        link.close()
        for call in list(self._calls.values()):
            call.done.set()
        self._again()

    def _tell(self) -> None:
        """In a thread of its own, so that listeners may ask the host something."""
        while (news := self._news.get()) is not None:
            known = self._known.get(news[0].application)
            if known is not None:
                try:
                    known.listener(*news)
                except Exception:
                    log.exception("whoever listens for %s failed", news[0])

    def _again(self) -> None:
        """The host is gone: start it anew, with everything."""
        self._link = None
        pause = RECONNECT_PAUSE
        while not self._closed.wait(pause):
            with self._lock:
                if not self._known or self._link is not None:
                    return
                try:
                    self._open()
                    return
                except (LinkClosed, RuntimeError, OSError) as error:
                    log.warning("the host cannot be started: %s", error)
            pause = min(2 * pause, 30.0)


def _packed(state: UnitState) -> list[Any]:
    return [*state._replace(status=asdict(state.status))]  # type: ignore[arg-type]


def _all_packed(states: dict[str, UnitState]) -> dict[str, list[Any]]:
    return {unit: _packed(state) for unit, state in states.items()}


def _unpacked(packed: list[Any]) -> UnitState:
    state = UnitState(*packed)
    return state._replace(status=UnitStatus(**packed[3]))
