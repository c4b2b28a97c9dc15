"""A short run of what `make faults-cluster` does for long: eight faults of a cluster, and nobody notices."""

from pathlib import Path

import pytest

from tests.faults.history import ABORTED, COMMITTED
from tests.faults.rounds import SETTINGS, Round

from .chaos import ClusterChaos
from .processes import COUNT, Processes
from .run import one_round, violations

SEED = 3
FAULTS = 8


@pytest.mark.java
@pytest.mark.timeout(600)
def test_eight_faults(tmp_path: Path) -> None:
    with Processes(tmp_path, SETTINGS) as processes:
        this = Round(1, replicas=COUNT, rate=600)
        chaos = ClusterChaos(processes, [], SEED)
        history = one_round(this, processes, chaos, FAULTS, SEED, between=0.5)
        wrong = violations(this, processes, chaos, history)
        logs = [f"--- {name} ---\n{broker.log[-3000:]}" for name, broker in processes.brokers.items()]
        assert not wrong, "\n".join([f"seed {SEED}", *wrong[:20], *logs])
        # The run is worth something only if everybody had something to do.
        assert chaos.done >= FAULTS
        for topic_partition in this.all_topic_partitions():
            assert len(history.final[topic_partition]) > 0, topic_partition
        assert {COMMITTED, ABORTED} <= {t.outcome for t in history.transactions.values()}
