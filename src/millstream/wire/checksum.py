"""CRC-32C, the checksum of a batch.

The package `crc32c` imports argparse and importlib.metadata and reads its own version. That takes 40 ms of
processor time, a third of what the child process of compaction needs to start. Only its compiled module is
used, so that is loaded without the package.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from types import ModuleType

__all__ = ["crc32c"]

_PACKAGE = "crc32c"
_COMPILED = "crc32c._crc32c"


def _compiled() -> ModuleType | None:
    """The module, known under its own name so that the package finds it there; None where it is not where
    this version of the package has it."""
    if _COMPILED in sys.modules:
        return sys.modules[_COMPILED]
    package = PathFinder.find_spec(_PACKAGE)
    spec = package and PathFinder.find_spec(_COMPILED, package.submodule_search_locations)
    if spec is None or spec.loader is None:
        return None
    module = spec.loader.create_module(spec)
    if module is not None:
        spec.loader.exec_module(module)
        sys.modules[_COMPILED] = module
    return module


crc32c: Callable[..., int]
_module = _compiled()
if _module is not None:
    crc32c = _module.crc32c
else:
    from crc32c import crc32c
