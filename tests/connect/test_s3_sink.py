"""The S3 sink against moto's server: another project's S3, over HTTP."""

from __future__ import annotations

import gzip
import json
import uuid
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from millstream.connect.errors import ConnectError, RetriableError
from millstream.testing.connect import SinkRun

KEYS = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-west-2"}


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(s3: str) -> Iterator[Any]:
    made = boto3.resource("s3", endpoint_url=s3, **KEYS).Bucket(f"b-{uuid.uuid4()}")
    made.create(CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    yield made
    made.meta.client.close()


def settings(url: str, bucket: Any, **more: str) -> dict[str, str]:
    named = {name.replace("_", "."): value for name, value in more.items()}
    return {
        "store.url": url,
        "s3.bucket.name": bucket.name,
        "aws.access.key.id": "test",
        "aws.secret.access.key": "test",
        "flush.size": "2",
        **named,
    }


def objects(bucket: Any) -> dict[str, bytes]:
    return {one.key: one.get()["Body"].read() for one in bucket.objects.all()}


def test_objects_have_confluents_names(s3: str, bucket: Any) -> None:
    sink = SinkRun("io.confluent.connect.s3.S3SinkConnector", settings(s3, bucket))
    for number in range(5):
        sink.send({"n": number}, topic="orders")
    sink.run()
    assert objects(bucket) == {
        "topics/orders/partition=0/orders+0+0000000000.json": b'{"n":0}\n{"n":1}\n',
        "topics/orders/partition=0/orders+0+0000000002.json": b'{"n":2}\n{"n":3}\n',
    }
    assert sink.lag == 1
    # The same again after a crash: nothing is doubled.
    sink.committed.clear()
    again = sink.restarted()
    again.run()
    assert len(objects(bucket)) == 2


def test_large_objects_go_in_parts_and_are_seen_whole(s3: str, bucket: Any) -> None:
    sink = SinkRun(
        "S3Sink",
        settings(s3, bucket, s3_part_size=str(5 << 20), flush_size="13", format_class="ByteArrayFormat"),
    )
    for number in range(12):
        sink.send(bytes([number]) * (1 << 20))
    sink.run()
    assert objects(bucket) == {}
    uploads = bucket.meta.client.list_multipart_uploads(Bucket=bucket.name)["Uploads"]
    assert len(uploads) == 1
    sink.send(b"end")
    sink.run()
    (data,) = objects(bucket).values()
    assert data == b"".join(bytes([number]) * (1 << 20) + b"\n" for number in range(12)) + b"end\n"


def test_aivens_settings_select_names_envelope_and_gzip(s3: str, bucket: Any) -> None:
    sink = SinkRun(
        "io.aiven.kafka.connect.s3.AivenKafkaConnectS3SinkConnector",
        {
            "aws.s3.endpoint": s3,
            "aws.s3.bucket.name": bucket.name,
            "aws.access.key.id": "test",
            "aws.secret.access.key": "test",
            "aws.s3.prefix": "raw/",
            "file.max.records": "1",
            "format.output.fields": "key,value,offset",
        },
    )
    sink.send({"n": 1}, key="a")
    sink.run()
    ((name, data),) = objects(bucket).items()
    assert name == "raw/test-0000000000-00000000000000000000.gz"
    assert json.loads(gzip.decompress(data)) == {"key": "a", "value": {"n": 1}, "offset": 0}


def test_a_bucket_that_is_not_there_fails_and_a_server_that_is_away_delays(s3: str, bucket: Any) -> None:
    missing = SinkRun("S3Sink", settings(s3, bucket, s3_bucket_name=f"missing-{uuid.uuid4()}"))
    away = SinkRun("S3Sink", settings("http://127.0.0.1:1", bucket, s3_part_retries="0"))
    for sink, error in ((missing, ConnectError), (away, RetriableError)):
        sink.send({"n": 1})
        sink.send({"n": 2})
        with pytest.raises(error) as raised:
            sink.run()
        assert (type(raised.value) is ConnectError) == (sink is missing)
