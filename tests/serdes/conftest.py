"""A broker and a registry of the tests of the registry."""

from ..registry.conftest import broker, registry

__all__ = ["broker", "registry"]
