"""A short run of what `make faults` does for long: ten kills with pauses and damaged files, and nobody
notices."""

from pathlib import Path

import pytest

from millstream.testing import Broker

from .chaos import Chaos
from .checker import check
from .history import ABORTED, COMMITTED
from .rounds import SETTINGS, Round, play

SEED = 20
KILLS = 10


@pytest.mark.timeout(300)
def test_ten_kills(tmp_path: Path) -> None:
    with Broker(SETTINGS, data_dir=tmp_path) as broker:
        this = Round(1, rate=1000)
        chaos = Chaos(broker, SEED)
        history = play(this, broker.bootstrap_servers, chaos, KILLS, SEED, between=0.8)
        violations = check(history)
        assert not violations, "\n".join([f"seed {SEED}", *map(str, violations[:20]), broker.log[-4000:]])
        # The run is worth something only if everybody had something to do.
        assert chaos.kills >= KILLS and chaos.damages and chaos.pauses
        for topic_partition in this.all_topic_partitions():
            assert len(history.final[topic_partition]) > 0, topic_partition
        assert {COMMITTED, ABORTED} <= {t.outcome for t in history.transactions.values()}
        assert sum(commit.finished is not None for commit in history.commits) > KILLS
