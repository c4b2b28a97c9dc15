"""A few kills of each kind in the usual tests; `make faults-pipeline` is the long run."""

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install millstream[pipelines])")
pytest.importorskip(
    "confluent_kafka", reason="confluent-kafka is not installed (pip install millstream[dev])"
)

from tests.faults.pipeline.run import run


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_every_input_has_its_effect_once(tmp_path):
    kinds = ("worker", "broker", "worker", "lost commit")
    chaos, driver, verdict = run(tmp_path, 0, seed=5, shape="shuffle", rate=300, seconds=60, kinds=kinds)
    assert chaos.total >= 3, driver.log.read_text()[-3000:]
    assert verdict.inputs > 0
    assert not verdict.wrong, f"{verdict}\n{driver.log.read_text()[-3000:]}"
