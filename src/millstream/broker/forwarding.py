"""Requests that only the controller can decide, from a broker that is not it (KIP-590).

Any broker takes any administrative request. Where it is not the controller, the client's request goes to the
controller as it came, in an Envelope with the client's principal and address; the controller's response goes
back to the client. It names the version of the metadata that shows the change, and the broker waits until its
own image has that version: who creates a topic and then asks this broker about it finds it.

While there is no controller, or it does not answer, the request is sent again, within the client's timeout.
Whether a request whose answer was lost has taken effect is unknown; like Kafka's brokers, this one then asks
the next controller, so that a repeated creation may be answered TOPIC_ALREADY_EXISTS. When time is up, the
request is answered here, where the answer is NOT_CONTROLLER.
"""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from millstream.broker.mutation_quota import create_within, mutation_quota
from millstream.cluster.commands import CreateTopics, NewTopic, TopicCreated
from millstream.wire.envelope import (
    BROKER_ITSELF,
    ENVELOPE,
    EnvelopeResponse,
    pack_envelope,
    read_envelope_response,
)
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.primitives import INT32

if TYPE_CHECKING:
    from millstream.broker.network.dispatch import Call
    from millstream.broker.replication.broker_connection import BrokerConnections
    from millstream.broker.server import Broker

logger = logging.getLogger("millstream.forwarding")

FIRST_PAUSE, LAST_PAUSE = 0.02, 0.5  # seconds between attempts
CREATE_TOPICS, CREATE_TOPICS_VERSION = 19, 7


class Forwarder:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._connections: BrokerConnections | None = None

    @property
    def is_controller(self) -> bool:
        return self._broker.controller.leading

    # ------------------------------------------------------------------ a client's request

    async def forward(self, call: Call) -> bytes | None:
        """The controller's response to the frame of this call, as a frame; None if nobody could be asked in
        time, or if this broker has become the controller: then it has to answer itself."""
        assert call.frame is not None
        data = await self.send(call.frame, call.principal, call.host, self._patience(call.request))
        return None if data is None else INT32.pack(len(data)) + data

    async def forward_message(self, call: Call, request: Any) -> Any:
        """The controller's response to `request`, which takes the place of the one in this call; None as for
        `forward`."""
        from millstream.client.messages import request_header
        from millstream.wire._kio import entity_reader, entity_writer

        form = call.codec
        body = io.BytesIO()
        entity_writer(form.request)(body, request)
        client_id = call.connection.client_id.encode()
        header = request_header(form.api, form.version, call.correlation_id, client_id, form.flexible)
        patience = self._patience(request)
        data = await self.send(header + body.getvalue(), call.principal, call.host, patience)
        if data is None:
            return None
        start = 5 if form.tagged_header else 4
        return entity_reader(form.response)(data[start:], 0)[0]

    def _patience(self, request: Any) -> float:
        """Seconds: the client's timeout, where the request has one, but no longer than between brokers."""
        longest: float = self._broker.settings.integer("request.timeout.ms") / 1000
        timeout = getattr(request, "timeout", None)
        return longest if timeout is None else max(min(longest, timeout.total_seconds()), 0.0)

    async def send(self, frame: bytes, principal: str, host: str, within: float) -> bytes | None:
        """The response, header included, to a request frame; None as for `forward`."""
        envelope = pack_envelope(frame, principal, host)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within
        pause = FIRST_PAUSE
        while not self.is_controller:
            answer = await self._ask(envelope, max(deadline - loop.time(), 0.001))
            if answer is not None:
                await self._see(answer.metadata_version, deadline)
                return answer.data
            if loop.time() + pause >= deadline:
                return None
            await asyncio.sleep(pause)
            pause = min(2 * pause, LAST_PAUSE)
        return None

    async def _ask(self, envelope: bytes, within: float) -> EnvelopeResponse | None:
        """One attempt; None if it has to be made again."""
        try:
            connection = await asyncio.wait_for(self._controller_connection(), within)
            answer: EnvelopeResponse = await connection.send(
                ENVELOPE, 0, True, [envelope], read_envelope_response, within
            )
        except (KafkaError, TimeoutError) as error:
            logger.info("a request for the controller is not answered: %s", error)
            return None
        if answer.error == ErrorCode.none:
            return answer
        if answer.error != ErrorCode.not_controller:
            code = ErrorCode(answer.error).name.upper()
            logger.warning("the controller at %s refuses forwarded requests: %s", connection.address, code)
        return None

    async def _controller_connection(self) -> Any:
        return await self.connections.shared(self._controller_id())

    def _controller_id(self) -> int:
        image = self._broker.image
        if image.controller_id not in image.brokers or image.controller_id == self._broker.node_id:
            raise KafkaError(ErrorCode.not_controller, "there is no controller at the moment")
        return image.controller_id

    @property
    def connections(self) -> BrokerConnections:
        """Made when first needed: a broker that is alone needs none."""
        if self._connections is None:
            self._connections = self._broker.new_connections("forwarding")
        return self._connections

    async def _see(self, version: int, deadline: float) -> None:
        """Wait until this broker's image has what the controller decided. If that takes too long (this broker
        is cut off from the store), the client hears of it all the same: it has happened."""
        left = deadline - asyncio.get_running_loop().time()
        try:
            await asyncio.wait_for(self._broker.controller.waits_for(version), max(left, 0.001))
        except TimeoutError:
            logger.warning("metadata version %d is not here yet, although the controller has it", version)

    # ------------------------------------------------------------------ this broker's own requests

    async def ask_controller(self, api: str, **fields: Any) -> Any:
        """A request of this broker to the controller, in its own name. KafkaError if it is not answered in
        time; a response that says NOT_CONTROLLER counts as no answer."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._broker.settings.integer("request.timeout.ms") / 1000
        pause = FIRST_PAUSE
        while True:
            left = max(deadline - loop.time(), 0.001)
            try:
                connection = await asyncio.wait_for(self._controller_connection(), left)
                answer = await connection.request(api, within=left, **fields)
                if answer.error_code is not ErrorCode.not_controller:
                    return answer
                problem = KafkaError(ErrorCode.not_controller)
            except TimeoutError:
                problem = KafkaError(ErrorCode.request_timed_out, "the controller does not answer")
            except KafkaError as error:
                problem = error
            if self.is_controller or loop.time() + pause >= deadline:
                raise problem
            await asyncio.sleep(pause)
            pause = min(2 * pause, LAST_PAUSE)

    async def create_topics(self, topics: Sequence[NewTopic], call: Call | None = None) -> list[TopicCreated]:
        """Topics that clients need and that are not there: in the name of the client (`call`), or of this
        broker. KafkaError if the controller cannot be asked."""
        if self.is_controller:
            return await self._create_here(topics, call)
        from millstream.client.messages import exchange, request_header

        within = self._broker.settings.integer("request.timeout.ms")
        form = exchange("create_topics", CREATE_TOPICS_VERSION)
        body = form.encode(
            {
                "topics": [
                    {
                        "name": topic.name,
                        "num_partitions": topic.num_partitions,
                        "replication_factor": topic.replication_factor,
                        "assignments": [],
                        "configs": [{"name": name, "value": value} for name, value in topic.configs.items()],
                    }
                    for topic in topics
                ],
                "timeout": within,
                "validate_only": False,
            }
        )
        client_id = b"auto-creation" if call is None else call.connection.client_id.encode()
        header = request_header(CREATE_TOPICS, CREATE_TOPICS_VERSION, 0, client_id, form.flexible)
        principal, host = (BROKER_ITSELF, "127.0.0.1") if call is None else (call.principal, call.host)
        data = await self.send(header + body, principal, host, within / 1000)
        if data is None:
            if self.is_controller:
                return await self.create_topics(topics, call)
            raise KafkaError(ErrorCode.request_timed_out, "The controller does not answer.")
        answer = form.decode(memoryview(data)[4:])
        return [
            TopicCreated(topic.name, ErrorCode(topic.error_code), topic.error_message)
            for topic in answer.topics
        ]

    async def _create_here(self, topics: Sequence[NewTopic], call: Call | None) -> list[TopicCreated]:
        """At the controller; a client's quota of changes counts for what it creates in passing, too."""
        controller = self._broker.controller
        if call is None:
            return await controller.submit(CreateTopics(topics))
        large = call.is_large
        quota = mutation_quota(self._broker, call, strict=True)
        if quota is None:
            return await controller.submit(CreateTopics(topics), is_large=large)
        return await create_within(quota, topics, lambda command: controller.submit(command, is_large=large))
