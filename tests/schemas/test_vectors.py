"""Pairs of schemas of Confluent's and Avro's own tests: whether the new one may follow the old one under
BACKWARD."""

import json
from pathlib import Path
from typing import Any

import pytest

from millstream.registry.compatibility_levels import Earlier, problems
from millstream.schemas import InvalidSchema, parse

VECTORS = json.loads((Path(__file__).parent / "vectors.json").read_text())


@pytest.mark.parametrize(
    "vector", VECTORS, ids=[f"{one['type']}-{index}" for index, one in enumerate(VECTORS)]
)
def test_vector(vector: dict[str, Any]) -> None:
    try:
        old = parse(vector["type"], vector["old"])
        new = parse(vector["type"], vector["new"], new=True)
        found = problems("BACKWARD", new, [Earlier(1, lambda: old)])
    except InvalidSchema as error:  # an import that the vector leaves out
        found = [str(error)]
    assert (not found) == vector["compatible"], f"{vector['name']}: {found}"
    assert all("%s" not in message for message in found)
