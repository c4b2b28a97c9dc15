"""TLS: produce of 64 KB and 1 MB, fetch of 1 MB over 1 and 4 connections, single messages, new connections a
second.

Both brokers have the same ECDSA P-256 key and certificate and speak TLS 1.3 with the generator, which is
built with OpenSSL and checks no certificate. Loads are those of broker_produce, broker_fetch and
broker_latency; "cpu" is the broker's CPU time for a request. New connections are full handshakes without
resumption, by `openssl s_time`.
"""

import contextlib
import datetime
import ipaddress
import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import brokers
import common
import load
from apache_kafka import HOST, available, free_port
from common import Measure, Report, Workload

BYTES_PER_RUN = 3_000_000_000
LOG_BYTES = 100_000_000
_numbers = itertools.count()
_tls_ports: dict[str, int] = {}


def key_and_certificate(path: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "benchmark")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=60))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(private + certificate.public_bytes(pem))
    return path


@contextlib.contextmanager
def both(report: Report) -> Iterator[list[brokers.Broker]]:
    """The brokers, each with a TLS listener beside the plain one."""
    options = report.options
    with common.data_folder(options) as folder:
        pem = key_and_certificate(folder / "broker.pem")
        used: list[brokers.Broker] = []
        try:
            for name in options.sides:
                if name == common.KAFKA and (reason := available()) is not None:
                    report.note(f"Apache Kafka left out: {reason}")
                    continue
                broker = brokers.make(name, folder, options.settings)
                port = _tls_ports[broker.name] = free_port()
                settings = broker.settings  # type: ignore[attr-defined]
                settings["ssl.keystore.type"] = "PEM"
                settings["ssl.keystore.location"] = str(pem)
                for setting in ("listeners", "advertised.listeners"):
                    if setting in settings:
                        settings[setting] += f",SSL://{HOST}:{port}"
                if "listener.security.protocol.map" in settings:
                    settings["listener.security.protocol.map"] += ",SSL:SSL"
                used.append(broker)
                brokers.start(broker)
            yield used
        finally:
            for broker in used:
                broker.stop()


def _tls(broker: brokers.Broker) -> dict[str, float | bool]:
    return {"tls": True, "port": _tls_ports[broker.name]}


def produce(
    name: str, batch_bytes: int, connections: int, seconds: float, aim: float, **more: int
) -> Workload:
    record_bytes = 1000 if batch_bytes else 100

    def prepare(broker: brokers.Broker) -> str:
        brokers.require_room(broker.log_dir, BYTES_PER_RUN / 1e9)
        os.sync()
        topic = f"tls-{next(_numbers)}"
        brokers.create_topic(broker, topic, connections)
        return topic

    def run(broker: brokers.Broker, topic: str) -> common.Result:
        return load.produce(
            broker,
            topic,
            batch_bytes=batch_bytes,
            record_bytes=record_bytes,
            connections=connections,
            partitions=connections,
            seconds=seconds,
            max_bytes=BYTES_PER_RUN,
            **{"in_flight": 5, **more},
            **_tls(broker),
        )

    if more.get("in_flight") == 1 and connections == 1:
        measures = (Measure("p50_us", "us", "p50", more_is_better=False, aim=aim),)
    elif batch_bytes:
        measures = (Measure("mb_per_s", "MB/s", aim=aim),)
    else:
        measures = (Measure("requests_per_s", "req/s", aim=aim),)
    return Workload(f"TLS: {name}", run, measures, prepare, brokers.delete_topic, cpu_aim=0.8)


def fetch(connections: int, seconds: float, aim: float) -> Workload:
    def prepare(broker: brokers.Broker) -> str:
        topic = f"tls-{next(_numbers)}"
        brokers.create_topic(broker, topic, connections)
        load.produce(
            broker,
            topic,
            batch_bytes=65536,
            connections=connections,
            partitions=connections,
            seconds=120,
            max_bytes=LOG_BYTES,
        )
        return topic

    def run(broker: brokers.Broker, topic: str) -> common.Result:
        return load.fetch(
            broker,
            topic,
            fetch_bytes=1 << 20,
            connections=connections,
            partitions=connections,
            in_flight=1,
            seconds=seconds,
            **_tls(broker),
        )

    name = f"TLS: fetch 1 MB, {connections} connection{'s' if connections > 1 else ''}"
    return Workload(
        name, run, (Measure("mb_per_s", "MB/s", aim=aim),), prepare, brokers.delete_topic, cpu_aim=0.8
    )


def new_connections(seconds: float) -> Workload:
    def run(broker: brokers.Broker, _topic: str) -> common.Result:
        where = f"{HOST}:{_tls_ports[broker.name]}"
        done = subprocess.run(
            ["openssl", "s_time", "-connect", where, "-new", "-time", str(max(2, round(seconds)))],
            capture_output=True,
            text=True,
            timeout=60 + seconds,
        )
        found = re.search(r"(\d+) connections in (\d+) real seconds", done.stdout)
        if found is None or not int(found[1]):
            raise brokers.Failed(f"{broker.name}: no connections: {done.stdout[-300:]} {done.stderr[-300:]}")
        count = float(found[1])
        return {"connections_per_s": count / float(found[2]), "requests": count}

    return Workload(
        "TLS: new connections, ECDSA, no resumption", run, (Measure("connections_per_s", "conn/s", aim=1.0),)
    )


def measure(report: Report) -> None:
    seconds = report.options.seconds
    workloads = [
        produce("produce 64 KB, 1 connection", 65536, 1, seconds, 1.3),
        produce("produce 64 KB, 4 connections", 65536, 4, seconds, 1.0),
        produce("produce 1 MB, 1 connection", 1_000_000, 1, seconds, 1.0),
        produce("produce 1 MB, 4 connections", 1_000_000, 4, seconds, 1.0),
        fetch(1, seconds, 1.0),
        fetch(4, seconds, 1.0),
        produce("round trip of 100 bytes", 0, 1, seconds, 1.0, in_flight=1),
        produce("50 connections with one message each", 0, 50, seconds, 1.0, in_flight=1),
        new_connections(seconds),
    ]
    with both(report) as used:
        common.compare(report, workloads, used)


if __name__ == "__main__":
    sys.exit(common.main("broker_tls", __doc__ or "", measure))
