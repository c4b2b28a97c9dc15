"""A broker and a registry of the tests of the registry."""

from ..registry.conftest import api, broker, registry, subject

__all__ = ["api", "broker", "registry", "subject"]
