"""The broker's log: one line per event, with level and component, as text or JSON
(`millstream.log.format`)."""

from __future__ import annotations

import logging
import sys
import time

_LEVELS = {"trace": "DEBUG", "warn": "WARNING", "fatal": "CRITICAL"}


class OneLine(logging.Formatter):
    """`2026-11-15 20:15:01,250 INFO network: message`; a traceback is folded into the same line."""

    def format(self, record: logging.LogRecord) -> str:
        return f"{_when(record)} {record.levelname} {_component(record)}: {_message(self, record)}"


class JsonLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        import json

        return json.dumps(
            {
                "time": _when(record),
                "level": record.levelname,
                "component": _component(record),
                "message": _message(self, record),
            }
        )


def _when(record: logging.LogRecord) -> str:
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(record.created))},{int(record.msecs):03d}"


def _component(record: logging.LogRecord) -> str:
    return record.name.removeprefix("millstream.")


def _message(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    text = record.getMessage()
    if record.exc_info:
        text += "\n" + formatter.formatException(record.exc_info)
    return text.replace("\n", " | ")


def configure(format: str, level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLine() if format == "json" else OneLine())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(_LEVELS.get(level.lower(), level.upper()))
    logging.getLogger("asyncio").setLevel(logging.WARNING)
