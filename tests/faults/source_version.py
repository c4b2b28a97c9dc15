"""A name for the broker's source as it is: results of runs add up over one version of it."""

import hashlib
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src" / "millstream"
BROKER = ("broker", "cluster", "settings", "storage", "wire")  # the packages that a broker is made of


def source_version() -> str:
    digest = hashlib.sha256()
    for package in BROKER:
        for path in sorted((SOURCE / package).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
