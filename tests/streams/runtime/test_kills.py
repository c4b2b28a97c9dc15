"""Exactly once, whatever is killed: a process that runs tasks is killed again and again, another goes on.

The counts of a word have to be 1, 2, 3 ... in the output, with nothing missing and nothing twice. The local
stores survive some of the kills and are deleted after others.
"""

from __future__ import annotations

import random
import shutil
import time
from collections import defaultdict
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle

from millstream.client import Cluster
from millstream.streams import Streams, StreamsBuilder, serdes
from tests.streams.runtime.kit import Driver, produce, read

WORDS, RECORDS, KILLS = 7, 1400, 4


def _slowly(value: str) -> str:
    """So that most moments are in the middle of something."""
    time.sleep(0.0005)
    return value


def _run(application: bytes, ready: Any) -> None:
    loads: Any = cloudpickle.loads
    with Driver(loads(application)).running() as running:
        ready.set()
        running.awaitTermination()


@pytest.mark.timeout(300)
def test_every_word_is_counted_once(
    broker: str, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    words, counts = new_topic(partitions=2), new_topic(partitions=2)
    builder = StreamsBuilder()
    builder.stream(words).map_values(_slowly).group_by(lambda _, word: word).count().to_stream().to(counts)
    application = Streams(builder.build(), f"{words}-app", bootstrap_servers=broker, state=tmp_path)
    application.make_topics()
    for number in range(2):
        records = ((b"k", b"w%d" % (each % WORDS)) for each in range(RECORDS // 2))
        produce(cluster, words, number, *records)
    dumps: Any = cloudpickle.dumps
    chosen, context = random.Random(11), get_context("spawn")
    for kill in range(KILLS):
        ready = context.Event()
        process = context.Process(target=_run, args=(dumps(application), ready))
        process.start()
        assert ready.wait(180)
        # Anywhere: while tasks are taken over, while they work, between two commits.
        time.sleep(chosen.uniform(0.05, 0.8))
        process.kill()
        process.join()
        if kill % 2:
            shutil.rmtree(application.settings.folder, ignore_errors=True)
    Driver(application).run()
    seen: dict[bytes | None, list[int]] = defaultdict(list)
    for word, count in read(cluster, counts):
        seen[word].append(serdes.LONG.read("", count))
    assert len(seen) == WORDS
    for word, found in seen.items():
        assert found == list(range(1, len(found) + 1)), word
    assert sum(len(found) for found in seen.values()) == RECORDS
