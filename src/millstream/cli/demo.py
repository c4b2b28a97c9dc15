"""`millstream demo`: the platform with made-up data flowing through it. Nothing is kept."""

import json
import random
import threading
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli import shared_options
from millstream.cli.errors import UsageError
from millstream.cli.up import print_event, require_extra, serve, service_names, show

if TYPE_CHECKING:
    from millstream.up.data_folders import Instance

READINGS, ALERTS = "bikes.readings", "bikes.alerts"
STAGES = ("frame", "wheels", "battery", "motor", "paint", "assembly")
LEVELS = ("INFO", "WARNING", "CRITICAL")
HINTS = """
Data flows into the topics {readings} and {alerts}. Look at it, in another terminal:

  millstream -p up topics --list
  millstream -p up console-consumer --topic {alerts} --from-beginning --where 'value.level == "CRITICAL"'
  millstream -p up console-consumer --topic {readings} --from-time -1m --max-messages 5 -o table
  millstream -p up perf produce --topic load --num-records 1000000 --record-size 100
{console}
Ctrl-C ends it.
"""


def command(
    rate: Annotated[
        float, typer.Option(metavar="N", help="Records a second, about one in ten of them an alert.")
    ] = 20.0,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="SERVICE,...", help="Start these services only; the broker is always there."),
    ] = None,
    port_base: Annotated[
        int | None, typer.Option(metavar="PORT", help="As for millstream up; 0: any free ports.")
    ] = None,
    version: shared_options.Version = False,
) -> int:
    """Start the platform with made-up data of an e-bike plant flowing through it, to look around in. Nothing
    is kept."""
    if version:
        return shared_options.show_version()
    if rate <= 0:
        raise UsageError("--rate must be more than 0")
    from millstream.up.supervisor import CannotStart, choose

    wanted = service_names(only)
    try:
        chosen = choose(["broker", *wanted] if wanted else [], [])
    except CannotStart as error:
        raise UsageError(str(error)) from None
    for service in chosen:
        require_extra(service.name, service.module)
    began = time.monotonic()

    def ready(instance: "Instance") -> None:
        show(instance, time.monotonic() - began)
        addresses = {one.name: one.address for one in instance.services}
        console = f"\nor open {addresses['console']}\n" if "console" in addresses else ""
        print(HINTS.format(readings=READINGS, alerts=ALERTS, console=console), flush=True)
        threading.Thread(target=feed, args=(addresses["broker"], rate), daemon=True).start()

    return serve(chosen, "", port_base, "127.0.0.1", {}, True, ready)


def feed(servers: str, rate: float) -> None:
    """Send made-up readings until the process ends; a broker that is being started again is waited for."""
    from millstream.client import Admin, ClientConfig, Cluster, NewTopic, Producer
    from millstream.wire.errors import KafkaError
    from millstream.wire.records import Record

    chance = random.Random()
    while True:
        try:
            with Cluster(ClientConfig.of(servers, {}, "millstream-demo")) as cluster:
                Admin(cluster).create_topics([NewTopic(READINGS, 3), NewTopic(ALERTS, 2)])
                producer = Producer(cluster)
                while True:
                    reading = invent(chance)
                    key = reading["stage"].encode()
                    now = reading["at"]
                    record = Record(0, now, key, json.dumps(reading).encode(), [("source", b"demo")])
                    producer.send(READINGS, STAGES.index(reading["stage"]) % 3, [record])
                    alert = worth_an_alert(reading, chance)
                    if alert is not None:
                        value = json.dumps(alert).encode()
                        partition = int(alert["level"] == "CRITICAL")
                        producer.send(ALERTS, partition, [Record(0, now, key, value, [("source", b"demo")])])
                    time.sleep(chance.expovariate(rate))
        except KafkaError as error:
            print_event(f"the demo's producer: {error.message}")
            time.sleep(1)


def invent(chance: random.Random) -> dict[str, Any]:
    return {
        "bike": chance.randrange(1000, 10_000),
        "stage": chance.choice(STAGES),
        "temperature": round(chance.gauss(45, 12), 1),
        "vibration": round(abs(chance.gauss(0, 1)), 3),
        "at": round(time.time() * 1000),
    }


def worth_an_alert(reading: dict[str, Any], chance: random.Random) -> dict[str, Any] | None:
    if reading["temperature"] < 58 and chance.random() > 0.03:
        return None
    level = "CRITICAL" if reading["temperature"] > 66 else chance.choice(LEVELS[:2])
    return {**reading, "level": level, "text": f"{reading['stage']} at {reading['temperature']} degrees"}
