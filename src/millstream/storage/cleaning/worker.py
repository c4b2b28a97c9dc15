"""The child process that compacts: `python -m millstream.storage.cleaning.worker`, spoken to through its
stdin and stdout.

It is started when there is something to clean and ends when its input does. Input is read by a thread of its
own, so the end of the broker, however violent, ends this process at once, even in the middle of a segment:
what it leaves behind are *.cleaned files, which nobody but it ever uses.

It runs at low priority, since nobody waits for it.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from typing import BinaryIO

from millstream.storage.cleaning import worker_protocol
from millstream.storage.cleaning.batch_records import Damaged
from millstream.storage.cleaning.compacting import Compaction
from millstream.storage.cleaning.worker_protocol import Job, Message
from millstream.storage.transactions import AbortedTransaction
from millstream.wire.errors import KafkaError

NICENESS = 10
PARENT_GONE = 3  # exit code


def main() -> None:
    be_modest()
    # Ctrl-C in a terminal is for the broker, which then lets us go.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
    output = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # whatever a library prints must not end up between the messages
    threading.Thread(target=_listen, args=(sys.stdin.buffer, inbox), daemon=True).start()
    Worker(inbox, output).run()


def be_modest() -> None:
    """Give way to the broker: for the processor, and where the system can tell, to what just woke up."""
    try:
        os.nice(NICENESS)
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    except (AttributeError, OSError):
        pass


def _listen(source: BinaryIO, inbox: queue.SimpleQueue[Message]) -> None:
    import json

    for text in iter(source.readline, b""):
        inbox.put(json.loads(text))
    os._exit(PARENT_GONE)


class Worker:
    def __init__(self, inbox: queue.SimpleQueue[Message], output: BinaryIO) -> None:
        self._inbox = inbox
        self._output = output
        self._aborted: list[AbortedTransaction] = []
        self._producers: dict[int, tuple[int, int]] = {}

    def run(self) -> None:
        while True:
            message = self._inbox.get()
            if message["say"] == "facts":
                self._aborted += [AbortedTransaction(*entry) for entry in message.get("aborted", ())]
                self._producers.update(
                    (pid, (last, epoch)) for pid, last, epoch in message.get("producers", ())
                )
            elif message["say"] == "clean":
                job = worker_protocol.read_job(message)
                job.aborted, self._aborted = self._aborted, []
                job.producers, self._producers = self._producers, {}
                self._clean(job)

    def _clean(self, job: Job) -> None:
        try:
            compaction = Compaction(job)
            for replacement in compaction.replacements():
                self._send(worker_protocol.replace_line(replacement))
                while self._inbox.get()["say"] != "next":
                    pass
            self._send(worker_protocol.done_line(compaction.summary))
        except (Damaged, KafkaError) as error:
            self._send(worker_protocol.line("failed", {"damaged": True, "reason": str(error)}))
        except (OSError, MemoryError) as error:
            self._send(
                worker_protocol.line(
                    "failed", {"damaged": False, "reason": str(error) or type(error).__name__}
                )
            )

    def _send(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self._output.write(view) or 0 :]


if __name__ == "__main__":
    main()
