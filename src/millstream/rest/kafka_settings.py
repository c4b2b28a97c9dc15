"""Settings of Java's clients in the words of librdkafka.

Most names are the same. Some differ, some name Java classes, some mean nothing here; what librdkafka does not know is left
out with a warning, once, as Java's clients warn about names that they do not know.
"""

import logging
import re
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer

log = logging.getLogger(__name__)

RENAMED = {
    "max.request.size": "message.max.bytes",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "ssl.truststore.location": "ssl.ca.location",
    "metadata.max.age.ms": "topic.metadata.refresh.interval.ms",
    "reconnect.backoff.max.ms": "reconnect.backoff.max.ms",
}
WITHOUT_MEANING = frozenset(
    {
        "key.serializer",
        "value.serializer",
        "key.deserializer",
        "value.deserializer",
        "max.poll.records",
        "default.api.timeout.ms",
        "ssl.truststore.type",
        "ssl.truststore.password",
        "max.block.ms",
        "group.id",
    }
)
ASSIGNORS = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "CooperativeStickyAssignor": "cooperative-sticky",
}
JAAS = re.compile(r'\b(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')
NO_SUCH = re.compile(r'No such configuration property: "([^"]+)"')


def translated(properties: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, text in properties.items():
        if name in WITHOUT_MEANING:
            continue
        if name == "sasl.jaas.config":
            found |= {f"sasl.{key}": value.replace('\\"', '"') for key, value in JAAS.findall(text)}
        elif name == "buffer.memory":
            found["queue.buffering.max.kbytes"] = max(1, int(text) // 1024)
        elif name == "partition.assignment.strategy":
            names = (one.strip().rpartition(".")[2] for one in text.split(","))
            found[name] = ",".join(ASSIGNORS.get(one, one) for one in names)
        elif name == "ssl.keystore.location" and properties.get("ssl.keystore.type", "").upper() == "PEM":
            found["ssl.certificate.location"] = found["ssl.key.location"] = text
        elif name == "ssl.keystore.type":
            continue
        else:
            found[RENAMED.get(name, name)] = text
    return found


def known(kind: type[Producer] | type[Consumer], config: dict[str, Any]) -> dict[str, Any]:
    """The part of a configuration that librdkafka knows. ValueError for a value that it does not take."""
    config = dict(config)
    quiet = logging.getLogger("millstream.rest.none")
    quiet.setLevel(logging.CRITICAL)
    trial = {"bootstrap.servers": "", "group.id": "trial"} if kind is Consumer else {"bootstrap.servers": ""}
    while True:
        try:
            kind({**config, **trial}, logger=quiet)
            return config
        except KafkaException as error:
            text = error.args[0].str()
            unknown = NO_SUCH.search(text)
            if unknown is None or unknown[1] not in config:
                raise ValueError(text) from None
            log.warning("the setting %s is not known to Kafka's C client and has no effect", unknown[1])
            del config[unknown[1]]
