"""Secrets have no place in logs: a task's errors may quote what its connector was given.

Tasks run in processes that log for several connectors, through the loggers of the host and of Connect. Those
hide the secrets of every task that has been opened in the process, also behind its end: an error is logged
when the task has gone.
"""

from __future__ import annotations

import logging
import threading
import traceback

from millstream.connect.config.config_def import ConfigDef
from millstream.connect.config.config_providers import resolve
from millstream.connect.herding.secrets import hidden, secrets_of
from millstream.connect.plugins import find_connector
from millstream.connect.runtime.task_spec import TaskSpec

LOGGERS = ("millstream.host", "millstream.connect")
MAX_SECRETS = 1000


class HiddenSecrets(logging.Filter):
    """Changes records, and lets all of them pass."""

    def __init__(self) -> None:
        super().__init__()
        self._secrets: dict[str, None] = {}  # in their order: the oldest is forgotten first
        self._lock = threading.Lock()

    def add(self, secrets: list[str]) -> None:
        with self._lock:
            known = [one for one in self._secrets if one not in secrets]
            self._secrets = dict.fromkeys([*known, *secrets][-MAX_SECRETS:])
        for name in LOGGERS:
            logging.getLogger(name).addFilter(self)  # once only

    def filter(self, record: logging.LogRecord) -> bool:
        secrets = sorted(self._secrets, key=len, reverse=True)
        text = record.getMessage()
        shown = hidden(text, secrets)
        if shown != text:
            record.msg, record.args = shown, ()
        if record.exc_info and record.exc_info[1] is not None:
            trace = "".join(traceback.format_exception(record.exc_info[1])).rstrip("\n")
            shown = hidden(trace, secrets)
            if shown != trace:
                record.exc_info, record.exc_text = None, shown
        return True


OF_THIS_PROCESS = HiddenSecrets()


def hide_in_logs(spec: TaskSpec) -> None:
    """What is secret in the settings of this task and in its worker's."""
    try:
        config = find_connector(spec.settings["connector.class"], spec.plugin_path).config
    except Exception:  # it is reported when the task is opened
        config = ConfigDef()
    found = secrets_of(spec.worker, spec.worker, ConfigDef())
    for settings in (spec.settings, spec.task):
        try:
            found += secrets_of(settings, resolve(settings, spec.providers), config)
        except Exception:
            found += secrets_of(settings, settings, config)
    OF_THIS_PROCESS.add(found)
