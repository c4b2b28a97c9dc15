"""Writes happen at the leader. Any other instance passes the request on to it and its answer back, as they
are.

It passes the answer on when it has itself read what was written, so that whoever wrote through it can read
there, too.
"""

import logging
import time
from collections.abc import Callable
from typing import Any

from fastapi import Request, Response

from millstream.http.cluster_authentication import caller_of
from millstream.http.tls import peer_context
from millstream.registry import errors
from millstream.registry.api.responses import service_of
from millstream.registry.commands import Change, Steps
from millstream.registry.election import Identity
from millstream.registry.registry_config import RegistryConfig
from millstream.registry.service import NotLeader
from millstream.registry.topic_log import TopicLog

log = logging.getLogger(__name__)

FORWARDED = "x-forward"
# How far the leader's state goes, for the instance that forwarded a request.
POSITION = "x-millstream-position"
PASSED_ON = ("content-type", "accept", "authorization", "x-request-id")


class NotReached(ConnectionError):
    """Nobody listens at the leader's address, so nothing of the request has arrived there."""


class LeaderClient:
    """Requests to the leader. An instance that leads never needs it, so httpx is loaded at the first use."""

    def __init__(self, config: RegistryConfig) -> None:
        self._config = config
        self._client: Any = None

    async def send(self, method: str, url: str, content: bytes, headers: dict[str, str]) -> Any:
        """The answer; ConnectionError where there is none."""
        import httpx

        if self._client is None:
            timeout = httpx.Timeout(
                self._config.value("leader.read.timeout.ms") / 1000,
                connect=self._config.value("leader.connect.timeout.ms") / 1000,
            )
            secure = any(listener.scheme == "https" for listener in self._config.listeners)
            verify = peer_context(self._config) if secure else True
            self._client = httpx.AsyncClient(timeout=timeout, verify=verify)
        try:
            return await self._client.request(method, url, content=content, headers=headers)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise NotReached(str(error) or type(error).__name__) from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ConnectionError(str(error) or type(error).__name__) from None

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()


async def at_leader(
    request: Request,
    decide: Callable[[], Change | Steps],
    render: Callable[[object], Response],
    topic_log: TopicLog | None = None,
) -> Response:
    """Do a change here if this instance leads, else have the leader do it. `topic_log` says of which topic;
    the schemas' by default."""
    service = service_of(request)
    topic_log = topic_log or service.log
    deadline = time.monotonic() + service.options.leader_timeout
    while True:
        leader = await service.wait_for_leader()
        if leader is not None:
            if request.headers.get(FORWARDED, "").lower() == "true":
                # The sender took this instance for the leader; it will find out.
                raise errors.unknown_leader()
            try:
                return await forward(request, leader, topic_log)
            except OSError as reason:
                left = deadline - time.monotonic()
                if isinstance(reason, NotReached) and await service.wait_for_leader_after(leader, left):
                    continue
                log.warning("the request could not be passed on to %s: %s", leader.url, reason)
                raise errors.forwarding_failed(
                    f"Error while forwarding the request to the leader {leader.url}: {reason}"
                ) from None
        try:
            response = render(await service.change(decide, topic_log))
            if FORWARDED in request.headers:
                response.headers[POSITION] = str(topic_log.position)
            return response
        except NotLeader:
            if time.monotonic() > deadline:
                raise errors.unknown_leader() from None


async def forward(request: Request, leader: Identity, topic_log: TopicLog) -> Response:
    client: LeaderClient = request.app.state.client
    headers = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
    headers["X-Forward"] = "true"
    caller = caller_of(request.scope)
    if caller is not None and caller.authorization:
        headers["authorization"] = caller.authorization
    path = request.scope["raw_path"].decode("ascii") if request.scope.get("raw_path") else request.url.path
    query = request.scope["query_string"].decode("ascii", "replace")
    url = f"{leader.url}{path}{'?' + query if query else ''}"
    got = await client.send(request.method, url, await request.body(), headers)
    position = got.headers.get(POSITION, "")
    if position.isdigit():
        await topic_log.read_up_to(int(position))
    return Response(got.content, got.status_code, media_type=got.headers.get("content-type"))
