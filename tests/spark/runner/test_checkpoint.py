"""Where pipelines keep their progress."""

import pytest

from millstream.spark.errors import PipelineError
from millstream.spark.runner.checkpoint import checkpoint_root, use_remote


@pytest.mark.parametrize(
    "given, location",
    [
        ("", "/home/me/pipelines"),
        ("here", "here"),
        ("/data/a b", "/data/a b"),
        ("file:///data/a%20b", "/data/a b"),
        ("file:/data", "/data"),
        ("file://localhost/data", "/data"),
    ],
)
def test_a_folder(given, location):
    root = checkpoint_root(given, "/home/me/pipelines")
    assert (root.location, str(root.local), root.remote) == (location, location, False)
    assert root.of("copy").endswith(f"{location}/copy") and root.of("copy").startswith("/")


def test_a_uri_keeps_its_locks_and_logs_in_a_folder_of_its_own():
    first, second = (checkpoint_root(f"hdfs://name:8020/{x}/", "/home/me/p") for x in "ab")
    assert (first.remote, first.of("copy")) == (True, "hdfs://name:8020/a/copy")
    assert first.local != second.local
    assert str(first.local).startswith("/home/me/p/")


@pytest.mark.parametrize("given", ["file://host/data", "file://data"])
def test_a_file_uri_with_a_host_is_refused(given):
    with pytest.raises(PipelineError, match="a file URI has no host"):
        checkpoint_root(given, "/home/me/p")


@pytest.mark.spark
def test_a_scheme_that_spark_does_not_know_is_refused(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PipelineError) as refused:
        use_remote(spark, checkpoint_root("s3a://bucket/pipelines", str(tmp_path)))
    assert refused.value.message == (
        "--checkpoint s3a://bucket/pipelines: this Spark has no file system for s3a://; add one with --conf "
        "spark.jars.packages=org.apache.hadoop:hadoop-aws:VERSION, or use a folder"
    )
    assert not list(tmp_path.iterdir())
