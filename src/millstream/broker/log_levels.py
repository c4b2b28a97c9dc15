"""The levels of this process's loggers, under the names that Kafka has for levels.

Changed from outside through the `broker-loggers` of DescribeConfigs and IncrementalAlterConfigs, and gone with the
process: after a restart `millstream.log.level` holds again. A logger without a level of its own has that of the nearest
one above it; `root` is above all.
"""

from __future__ import annotations

import logging

ROOT = "root"
LEVELS = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
_ABOVE_ALL = "millstream"  # nobody logs under this name, but it is where the level of all rooms is set

logger = logging.getLogger("millstream.settings")


def levels() -> dict[str, str]:
    """Every logger by name, with the level that counts for it."""
    logging.getLogger(_ABOVE_ALL)
    found = {
        name: one for name, one in logging.root.manager.loggerDict.items() if isinstance(one, logging.Logger)
    }
    return {
        name: _name(one.getEffectiveLevel()) for name, one in [(ROOT, logging.root), *sorted(found.items())]
    }


def set_level(name: str, level: str | None) -> None:
    """Give a logger a level, or take it away (None)."""
    _logger(name).setLevel(logging.NOTSET if level is None else LEVELS[level])
    logger.warning("log level of %s: %s", name, level or "as above it")


def _logger(name: str) -> logging.Logger:
    return logging.root if name == ROOT else logging.getLogger(name)


def _name(level: int) -> str:
    return next((name for name, number in reversed(LEVELS.items()) if level >= number), "TRACE")
