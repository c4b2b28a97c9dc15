"""The store that the driver's tests use keeps the contract too."""

from __future__ import annotations

import pytest

from tests.support.memory_store import Hub, MemoryStore

from .store_contract import Opener, SharedStoreContract


class MemoryOpener(Opener):
    def __init__(self) -> None:
        super().__init__()
        self.hub = Hub()

    async def make(self) -> MemoryStore:
        return MemoryStore(self.hub)


class TestMemoryStore(SharedStoreContract):
    @pytest.fixture
    async def opener(self) -> Opener:
        return MemoryOpener()
