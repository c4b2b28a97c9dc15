"""A pipeline's readers and writers reach the brokers as the runner itself does."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from millstream.client import ClientConfig
from millstream.spark.runner.client_options import options_of
from millstream.spark.runner.pipeline_file import App
from millstream.spark.runner.run import Options, _Process
from millstream.spark.sink.write_options import parse_write_options
from millstream.spark.source.read_options import parse_read_options

SERVERS = "host:1"
SASL = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.jaas.config": 'org...ScramLoginModule required username="me" password="a \\"b\\" c";',
}
TLS_FILES = {
    "security.protocol": "SSL",
    "ssl.truststore.location": "ca.pem",
    "ssl.keystore.location": "me.pem",
}
TLS_TEXTS = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "me",
    "sasl.password": "p",
    "ssl.truststore.certificates": "-----BEGIN CERTIFICATE-----",
    "ssl.keystore.certificate.chain": "-----BEGIN CERTIFICATE-----",
    "ssl.keystore.key": "-----BEGIN PRIVATE KEY-----",
    "ssl.key.password": "k",
    "ssl.endpoint.identification.algorithm": "",
}


@pytest.mark.parametrize(
    "properties",
    [
        {},
        SASL,
        TLS_FILES,
        TLS_TEXTS,
        {"request.timeout.ms": "1500", "retry.backoff.ms": "20", "client.id": "c"},
    ],
)
def test_the_same_client(properties: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("ca.pem", "me.pem"):
        Path(name).write_text("-----BEGIN CERTIFICATE-----")
    absolute = {n: str(tmp_path / v) if n.endswith("location") else v for n, v in properties.items()}
    wanted = ClientConfig.of(SERVERS, {**absolute, "client.id": "x"})
    options = {"kafka.bootstrap.servers": SERVERS, **options_of(ClientConfig.of(SERVERS, properties))}
    source = parse_read_options({**options, "subscribe": "t", "kafka.client.id": "x"}, True)
    assert source.client == wanted
    sink = parse_write_options(
        {**options, "topic": "t", "kafka.client.id": "x", "kafka.default.api.timeout.ms": "60000"},
        StructType([StructField("value", StringType())]),
    )
    assert sink.client == wanted


def test_a_pipeline_is_told(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text("def pipeline(spark, settings): ...")
    options = Options([str(app)], SERVERS, ClientConfig.of(SERVERS, SASL), checkpoint=str(tmp_path))
    nobody: Any = None
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(master="local"))
    queries = _Process(options, {}, nobody, nobody)._prepared("p", App(str(app)), spark, nobody)
    assert queries._settings.kafka == {
        "kafka.bootstrap.servers": SERVERS,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "SCRAM-SHA-256",
        "kafka.sasl.username": "me",
        "kafka.sasl.password": 'a "b" c',
    }


def test_nothing_to_say() -> None:
    assert options_of(ClientConfig.of(SERVERS)) == {}
