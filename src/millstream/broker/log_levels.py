"""The levels of this process's loggers, by the names that Kafka has for levels.

They are changed through the resource `broker-loggers` of IncrementalAlterConfigs (KIP-412) and are gone with
the process: after a restart `millstream.log.level` holds again. A logger without a level of its own has that
of its nearest ancestor; `root` is the ancestor of all.
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
# No message is logged under this name; it is the ancestor of all loggers of ours.
_PACKAGE = "millstream"

logger = logging.getLogger("millstream.settings")


def levels() -> dict[str, str]:
    """Every logger by name, with its effective level."""
    logging.getLogger(_PACKAGE)
    loggers = {
        name: found
        for name, found in logging.root.manager.loggerDict.items()
        if isinstance(found, logging.Logger)
    }
    return {
        name: _name(found.getEffectiveLevel())
        for name, found in [(ROOT, logging.root), *sorted(loggers.items())]
    }


def set_level(name: str, level: str | None) -> None:
    """Give a logger a level, or take it away (None)."""
    _logger(name).setLevel(logging.NOTSET if level is None else LEVELS[level])
    logger.warning("log level of %s: %s", name, level or "inherited")


def _logger(name: str) -> logging.Logger:
    return logging.root if name == ROOT else logging.getLogger(name)


def _name(level: int) -> str:
    return next((name for name, number in reversed(LEVELS.items()) if level >= number), "TRACE")
