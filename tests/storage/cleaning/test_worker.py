"""The child process: does what it is told, hands over segment by segment, and never outlives its parent."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from millstream.storage.cleaning import planning, swap
from millstream.storage.cleaning.cleaned_segment import Replacement
from millstream.storage.cleaning.cleaner_process import COMMAND, CleanerFailed, CleanerProcess
from millstream.storage.cleaning.worker_protocol import Job
from tests.support.waiting import wait_until, wait_until_async

from ..batches import NOW, files
from ..conftest import OpenLog
from .helpers import LATER, compacted, job_of, put, rows


async def in_child(job: Job, log: object = None) -> tuple[int, int]:
    """Clean by a child; how many replacements there were, and how many records remain."""
    child = await CleanerProcess.start()
    count = 0

    async def put_in_place(replacement: Replacement) -> None:
        nonlocal count
        count += 1
        if log is not None:
            swap.replace_segments(log, replacement, LATER)  # type: ignore[arg-type]

    try:
        summary = await child.clean(job, put_in_place)
        return count, summary.records_after
    finally:
        await child.end()


async def test_cleans_a_log(open_log: OpenLog) -> None:
    log = open_log(compacted(segment_bytes=2000))
    for number in range(60):
        put(log, (b"%d" % (number % 7), b"v" * 100), codec=number % 5)
    put(log, (b"t", b"1"), producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
    log.append_marker(9, 0, False, 0, 0, NOW)
    log.set_high_watermark(log.end_offset)
    log.roll(NOW)
    job = job_of(log, planning.survey(log, 0, LATER), LATER)
    assert job.aborted and job.producers
    count, after = await in_child(job, log)
    assert count > 1
    assert [row[0] for row in rows(log)] == list(range(53, 60))
    assert after == 8, "seven records and the marker"


async def test_one_child_cleans_several_logs(tmp_path: Path) -> None:
    from millstream.storage.log import PartitionLog

    child = await CleanerProcess.start()
    pids = set()
    for name in ("a-0", "b-0"):
        log = PartitionLog.open(tmp_path / name, compacted())
        put(log, (b"k", b"1"), producer_id=4, producer_epoch=0, base_sequence=0)
        put(log, (b"k", b"2"))
        log.roll(NOW)

        async def put_in_place(replacement: Replacement, log: PartitionLog = log) -> None:
            swap.replace_segments(log, replacement, LATER)

        await child.clean(job_of(log, planning.survey(log, 0, LATER), LATER), put_in_place)
        assert [row[0] for row in rows(log)] == [1]
        pids.add(child.pid)
        log.close(clean=False)
    assert len(pids) == 1
    await child.end()
    assert not Path(f"/proc/{child.pid}").exists()


async def test_very_many_producers(open_log: OpenLog) -> None:
    log = open_log(compacted())
    put(log, (b"k", b"1"))
    put(log, (b"k", b"2"))
    log.roll(NOW)
    job = job_of(log, planning.survey(log, 0, LATER), LATER)
    job.producers = {number: (-1, 0) for number in range(20_000)}
    assert await in_child(job, log) == (1, 1)


async def test_says_what_is_wrong_and_goes_on(open_log: OpenLog, folder: Path) -> None:
    log = open_log(compacted())
    put(log, (b"k", b"1"))
    put(log, (b"k", b"2"))
    log.roll(NOW)
    job = job_of(log, planning.survey(log, 0, LATER), LATER)
    path = Path(log.segments[0].path)
    content = path.read_bytes()
    child = await CleanerProcess.start()

    async def put_in_place(replacement: Replacement) -> None:
        swap.replace_segments(log, replacement, LATER)

    try:
        path.write_bytes(content[:-1] + b"?")
        with pytest.raises(CleanerFailed, match="wrong checksum") as failure:
            await child.clean(job, put_in_place)
        assert failure.value.damaged
        path.rename(folder / "elsewhere")
        with pytest.raises(CleanerFailed, match="No such file") as failure:
            await child.clean(job, put_in_place)
        assert not failure.value.damaged
        path.write_bytes(content)
        await child.clean(job, put_in_place)
        assert [row[0] for row in rows(log)] == [1]
    finally:
        await child.end()


async def test_a_child_that_dies_is_noticed(open_log: OpenLog, folder: Path) -> None:
    log = open_log(compacted())
    put(log, (b"k", b"1"))
    put(log, (b"k", b"2"))
    log.roll(NOW)
    child = await CleanerProcess.start()

    async def put_in_place(replacement: Replacement) -> None:
        os.kill(child.pid, signal.SIGKILL)

    with pytest.raises(CleanerFailed):
        await child.clean(job_of(log, planning.survey(log, 0, LATER), LATER), put_in_place)
    await child.end()
    swap.remove_leftovers(log.folder)
    assert not [name for name in files(folder) if name.endswith(".cleaned")]
    assert len(rows(log)) == 2


async def test_a_cleaning_that_is_given_up(open_log: OpenLog) -> None:
    log = open_log(compacted(segment_bytes=100_000))
    for number in range(100):
        put(log, (b"%d" % (number % 3), b"v" * 500))
    log.roll(NOW)
    job = job_of(log, planning.survey(log, 0, LATER), LATER, bytes_per_second=1.0)
    task = asyncio.create_task(in_child(job))
    # At a byte a second it is never done; most often the child has begun by then.
    await asyncio.sleep(0.5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(rows(log)) == 100


async def test_is_modest() -> None:
    child = await CleanerProcess.start()
    try:
        own = os.getpriority(os.PRIO_PROCESS, 0)
        await wait_until_async(lambda: os.getpriority(os.PRIO_PROCESS, child.pid) > own)
    finally:
        await child.end()


PARENT = """
import subprocess, sys, time
child = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
print(child.pid, flush=True)
time.sleep(60)
"""


def test_ends_with_its_parent_however_violent_that_is() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, *COMMAND], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    # Killed early in the child's life, or late: both must end it.
    time.sleep(0.3)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_until(lambda: not _runs(child), "the child is still there")


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_imports_little() -> None:
    """The child needs a decoder and a table: no event loop, no broker, nothing heavy."""
    code = (
        "import sys, millstream.storage.cleaning.worker\n"
        "print([name for name in ('asyncio', 'kio.serial', 'millstream.broker', 'numpy', 'numba', 'typer')"
        " if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
