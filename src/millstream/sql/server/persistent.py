"""Persistent queries: each a Streams application on the host, at one of the servers of the service.

All servers know all queries; `server_group` says which are this one's. Those it starts, and stops when they
become another's. A query that moves goes on from what it has committed; its stores are restored from their
changelogs.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from millstream.client import Admin, ClientConfig, Cluster
from millstream.client.groups import Groups
from millstream.sql.recipes import Recipe
from millstream.streams.errors import StreamsError, TakenOver
from millstream.streams.runtime.application import Streams
from millstream.streams.runtime.running import RunningStreams
from millstream.streams.task import Errors
from millstream.wire.errors import KafkaError

log = logging.getLogger("millstream.sql")

_TRY_AGAIN = 2.0


AnyHost: TypeAlias = Any
"""A LocalHost or a RemoteHost: what `millstream.host` has in common for both."""


def _none(_query_id: str) -> bool:
    return False


def application_id(service_id: str, query_id: str) -> str:
    return f"_confluent-ksql-{service_id}query_{query_id}"


class PersistentQueries:
    """`make_host` is called when the first query starts."""

    def __init__(
        self,
        client: ClientConfig,
        service_id: str,
        state_dir: Path,
        make_host: Callable[[], AnyHost],
        settings: dict[str, Any],
        *,
        bootstrap: str,
        security: dict[str, str],
    ) -> None:
        self._client, self._service_id, self._state_dir = client, service_id, state_dir
        self._make_host, self._settings = make_host, settings
        self._bootstrap, self._security = bootstrap, security
        self._host: AnyHost | None = None
        self._wanted: dict[str, Recipe] = {}
        self._paused: set[str] = set()
        self._running: dict[str, RunningStreams] = {}
        self._failed: dict[str, str] = {}
        self._is_mine: Callable[[str], bool] = _none
        self._may_start: Callable[[str], bool] = _none
        self._lock = threading.RLock()
        self._changed = threading.Event()
        self._stopping = threading.Event()
        self._worker = threading.Thread(target=self._work, name="persistent-queries", daemon=True)
        self._worker.start()

    # What is wanted

    def add(self, query_id: str, recipe: Recipe) -> None:
        with self._lock:
            self._wanted[query_id] = recipe
            self._failed.pop(query_id, None)
        self._changed.set()

    def remove(self, query_id: str, *, delete: bool = True) -> None:
        """Stops a query; `delete`: its offsets, stores and internal topics go as well."""
        with self._lock:
            recipe = self._wanted.pop(query_id, None)
            mine = self._is_mine(query_id)
            self._paused.discard(query_id)
            self._failed.pop(query_id, None)
            running = self._running.pop(query_id, None)
        if running is not None:
            running.stop()
        if delete and recipe is not None and mine:
            self._clean(query_id)

    def pause(self, query_id: str) -> None:
        with self._lock:
            self._paused.add(query_id)
            running = self._running.pop(query_id, None)
        if running is not None:
            running.stop()

    def resume(self, query_id: str) -> None:
        with self._lock:
            self._paused.discard(query_id)
        self._changed.set()

    def share(self, is_mine: Callable[[str], bool], may_start: Callable[[str], bool]) -> None:
        """Which queries are this server's, and whether it may start one now."""
        self._is_mine, self._may_start = is_mine, may_start
        self._changed.set()

    def shared_anew(self) -> None:
        """The answers have changed. Returns at once: to stop a query takes a while."""
        self._changed.set()

    # What is

    def state(self, query_id: str) -> str:
        with self._lock:
            if query_id in self._failed:
                return "ERROR"
            if query_id in self._paused:
                return "PAUSED"
            running = self._running.get(query_id)
        if running is None:
            return "REBALANCING" if self._is_mine(query_id) else "RUNNING"
        return "ERROR" if running.state == "ERROR" else "RUNNING"

    def error(self, query_id: str) -> str | None:
        with self._lock:
            running = self._running.get(query_id)
            found = self._failed.get(query_id)
        if found is not None or running is None:
            return found
        if running.exception() is not None:
            return str(running.exception())
        # A task that was set aside is tried again; meanwhile its query does less than it should.
        failing = [task.error for task in running.tasks().values() if task.error and task.state != "running"]
        return failing[0] if failing else None

    def running(self, query_id: str) -> RunningStreams | None:
        with self._lock:
            return self._running.get(query_id)

    def wait_running(self, query_id: str, timeout: float) -> bool:
        """Until its tasks run; for whoever wants to see results."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            running = self.running(query_id)
            if running is not None and running.state == "RUNNING":
                return True
            if self.state(query_id) == "ERROR":
                return False
            time.sleep(0.01)
        return False

    def close(self) -> None:
        self._stopping.set()
        self._changed.set()
        self._worker.join(30)
        with self._lock:
            stopped, self._running = self._running, {}
        for running in stopped.values():
            running.stop()
        if self._host is not None:
            if hasattr(self._host, "end"):
                self._host.end(0.5)  # its units have let go of everything: no reason to wait for its lanes
            self._host.close()

    # Doing it

    def _work(self) -> None:
        while not self._stopping.is_set():
            self._changed.wait(_TRY_AGAIN)
            self._changed.clear()
            if self._stopping.is_set():
                continue
            for running in self._given_away():
                running.stop()
            with self._lock:
                missing = [
                    (query_id, recipe)
                    for query_id, recipe in self._wanted.items()
                    if self._may_start(query_id)
                    and query_id not in self._running
                    and query_id not in self._paused
                    and query_id not in self._failed
                ]
            for query_id, recipe in missing:
                self._start(query_id, recipe)

    def _given_away(self) -> list[RunningStreams]:
        """Those that run here and should not. What was taken over is among them: if it is this server's
        nevertheless (which was suspended, say, and has come back), it starts again."""
        with self._lock:
            self._failed = {one: why for one, why in self._failed.items() if self._is_mine(one)}
            found = [
                query_id
                for query_id, running in self._running.items()
                if isinstance(running.exception(), TakenOver) or not self._is_mine(query_id)
            ]
            return [self._running.pop(query_id) for query_id in found]

    def _start(self, query_id: str, recipe: Recipe) -> None:
        try:
            if self._host is None:
                self._host = self._make_host()
            streams = self.streams(query_id, recipe)
            streams.make_topics()
            running = RunningStreams(streams, self._host)
        except (KafkaError, OSError) as error:
            log.warning("query %s cannot start yet: %s", query_id, error)
            return
        except Exception as error:
            with self._lock:
                self._failed[query_id] = str(error) or type(error).__name__
            log.exception("query %s cannot run", query_id)
            return
        with self._lock:
            if query_id in self._wanted and query_id not in self._paused and self._is_mine(query_id):
                self._running[query_id] = running
                return
        running.stop()

    def streams(self, query_id: str, recipe: Recipe) -> Streams:
        fail = str(recipe.settings.get("ksql.fail.on.deserialization.error", "false")).lower() == "true"
        return Streams(
            recipe.topology(),
            application_id(self._service_id, query_id),
            bootstrap_servers=self._bootstrap,
            client=self._security,
            state=self._state_dir,
            errors=Errors(reading="fail" if fail else "continue", processing="fail"),
            config=dict(self._settings),
        )

    def _clean(self, query_id: str) -> None:
        name = application_id(self._service_id, query_id)
        try:
            with Cluster(self._client) as cluster:
                admin = Admin(cluster)
                internal = [topic for topic in admin.topic_names() if topic.startswith(name + "-")]
                admin.delete_topics(internal)
                Groups(cluster).delete([name])
        except (KafkaError, StreamsError) as error:
            log.warning("what %s has left could not be deleted: %s", query_id, error)
        import shutil

        shutil.rmtree(self._state_dir / name, ignore_errors=True)
