"""The topologies of the vectors that were made up (`plans`): each is built from the plan beside it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from tests.streams.kit import BUILDS, CONFIGS, Build
from tests.streams.plans import build

_FILE = Path(__file__).with_name("vectors") / "plans.json.gz"


def _build(steps: list[dict[str, Any]]) -> Build:
    return lambda builder: build(steps, builder)


for _vector in json.loads(gzip.decompress(_FILE.read_bytes())):
    BUILDS[_vector["name"]] = _build(_vector["plan"]["steps"])
    if _vector["plan"]["optimized"]:
        CONFIGS[_vector["name"]] = {"topology.optimization": "all"}
