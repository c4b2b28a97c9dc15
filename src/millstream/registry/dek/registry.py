"""The keys of a running registry: their state and the topic behind it.

The topic is opened, and created if need be, by the first request for a key; a registry that no client asks
for keys has neither the topic nor a thread for it.
"""

import asyncio
from dataclasses import dataclass

from millstream.client import ClientConfig
from millstream.registry import errors
from millstream.registry.dek.commands import KeyCommands
from millstream.registry.dek.keys import fence_record
from millstream.registry.dek.state import KeyState
from millstream.registry.schemas_topic import SchemasTopicConfig, TopicUnusable
from millstream.registry.topic_log import TopicLog
from millstream.wire.errors import KafkaError


@dataclass(frozen=True, slots=True)
class DekConfig:
    topic: SchemasTopicConfig
    max_keys: int = 20000


class DekRegistry:
    def __init__(self, client: ClientConfig, config: DekConfig) -> None:
        self.state = KeyState()
        self.commands = KeyCommands(self.state, config.max_keys)
        self.log = TopicLog(client, config.topic, self.state.apply, fence_record)
        self._started = False
        self._starting = asyncio.Lock()

    async def ensure_started(self) -> None:
        """Before a key is read or written. RegistryError if the topic cannot be used."""
        if self._started:
            return
        async with self._starting:
            if self._started:
                return
            try:
                await self.log.start()
            except TopicUnusable as error:
                raise errors.store_failed(str(error)) from None
            except KafkaError as error:
                raise errors.store_failed(f"the keys cannot be read: {error.message}") from None
            self._started = True

    async def stop(self) -> None:
        await self.log.stop()
