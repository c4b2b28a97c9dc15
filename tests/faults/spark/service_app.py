"""A service under fire: `millstream sql-server` or `millstream connect distributed`, and who tells it
what to run as soon as it answers. A process of its own, to be killed; its tasks run in lanes on Spark, in the
driver child that it starts."""

import argparse
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx

from tests.faults.spark.supervise import SETTINGS, STARTED, end_with_parent

SERVICE_ID = "faults_"
# Equal keys are in both partitions of the input: they are counted behind a repartition topic.
STATEMENTS = (
    "CREATE STREAM IF NOT EXISTS S (K STRING KEY, V STRING) "
    "WITH (KAFKA_TOPIC='{source}', VALUE_FORMAT='DELIMITED');",
    "CREATE TABLE IF NOT EXISTS T WITH (KAFKA_TOPIC='{target}', VALUE_FORMAT='KAFKA', PARTITIONS=2) AS "
    "SELECT UCASE(K) AS U, COUNT(*) AS N FROM S GROUP BY UCASE(K) EMIT CHANGES;",
)
GROUP = "faults"


def connectors(folder: Path, source: str, target: str) -> dict[str, dict[str, str]]:
    """A sink that writes where each record was, and a source."""
    string = "org.apache.kafka.connect.storage.StringConverter"
    shared = {"key.converter": string, "value.converter": string, "tasks.max": "1"}
    return {
        "sink": {
            **shared,
            "connector.class": "FileStreamSink",
            "topics": source,
            "file": str(folder / "sink.txt"),
            "transforms": "hoist,where",
            "transforms.hoist.type": "org.apache.kafka.connect.transforms.HoistField$Value",
            "transforms.hoist.field": "v",
            "transforms.where.type": "org.apache.kafka.connect.transforms.InsertField$Value",
            "transforms.where.partition.field": "p",
            "transforms.where.offset.field": "o",
        },
        "source": {
            **shared,
            "connector.class": "FileStreamSource",
            "topic": target,
            "file": str(folder / "source.txt"),
        },
    }


def tell(what: str, url: str, folder: Path, source: str, target: str) -> None:
    with httpx.Client(base_url=url, timeout=60) as http:
        while True:
            try:
                if what == "sql":
                    done = _tell_sql(http, source, target)
                else:
                    done = _tell_connect(http, folder, source, target)
                if done:
                    print(STARTED, flush=True)
                    return
            except (httpx.HTTPError, ValueError, LookupError):
                pass
            time.sleep(0.2)


def _tell_sql(http: httpx.Client, source: str, target: str) -> bool:
    for statement in STATEMENTS:
        text = statement.format(source=source, target=target)
        properties = {"ksql.streams.auto.offset.reset": "earliest"}
        http.post("/ksql", json={"ksql": text, "streamsProperties": properties}).raise_for_status()
    found: Any = http.post("/ksql", json={"ksql": "SHOW QUERIES;"}).json()
    return [query["state"] for query in found[0]["queries"]] == ["RUNNING"]


def _tell_connect(http: httpx.Client, folder: Path, source: str, target: str) -> bool:
    known = http.get("/connectors").json()
    for name, settings in connectors(folder, source, target).items():
        if name not in known:
            http.put(f"/connectors/{name}/config", json=settings).raise_for_status()
    return all(
        [task["state"] for task in http.get(f"/connectors/{name}/status").json()["tasks"]] == ["RUNNING"]
        for name in ("sink", "source")
    )


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["sql", "connect"])
    for name in ("servers", "source", "target", "folder", "shared", "port"):
        parser.add_argument(f"--{name}", required=True)
    given = parser.parse_args()
    end_with_parent()
    folder = Path(given.folder)
    url = f"http://127.0.0.1:{given.port}"
    settings = {
        "bootstrap.servers": given.servers,
        "listeners": url,
        "millstream.driver.dir": str(folder / "driver"),
        **{name: text for name, text in SETTINGS.items() if name.startswith("spark.driver.")},
    }
    if given.what == "sql":
        settings |= {"ksql.service.id": SERVICE_ID, "ksql.streams.state.dir": str(folder / "state")}
        command = []
    else:
        topics = {f"{what}.storage.topic": f"faults-{what}" for what in ("config", "offset", "status")}
        factors = {f"{what}.storage.replication.factor": "1" for what in ("config", "offset", "status")}
        converters = {
            f"{what}.converter": "org.apache.kafka.connect.storage.StringConverter"
            for what in ("key", "value")
        }
        settings |= {"group.id": GROUP, "exactly.once.source.support": "enabled"}
        settings |= topics | factors | converters
        command = ["distributed"]
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    arguments = (given.what, url, Path(given.shared), given.source, given.target)
    threading.Thread(target=tell, args=arguments, daemon=True).start()
    if given.what == "sql":
        from millstream.sql.server.main import main as run
    else:
        from millstream.connect.main import main as run
    return run(command)


if __name__ == "__main__":
    sys.exit(main())
