"""Spark and the broker are those of tests/spark."""

from tests.spark.conftest import broker, cluster, name, new_topic, registry, spark

__all__ = ["broker", "cluster", "name", "new_topic", "registry", "spark"]
