"""Settings of Java's clients by the names of librdkafka.

Most names are the same. Some differ, some name Java classes, some mean nothing here; what librdkafka does not
know is left out with a warning, once, as Java's clients warn about names that they do not know. TLS and login
are read by our own client's rules, so that both clients of the proxy take the same settings and refuse the
same.
"""

import logging
import re
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer

from millstream.client.security import read_security

log = logging.getLogger(__name__)

RENAMED = {
    "max.request.size": "message.max.bytes",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "metadata.max.age.ms": "topic.metadata.refresh.interval.ms",
}
WITHOUT_MEANING = frozenset(
    {
        "key.serializer",
        "value.serializer",
        "key.deserializer",
        "value.deserializer",
        "max.poll.records",
        "default.api.timeout.ms",
        "max.block.ms",
        "group.id",
    }
)
ASSIGNORS = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "CooperativeStickyAssignor": "cooperative-sticky",
}
SECURITY = ("security.protocol", "ssl.", "sasl.")
NO_SUCH = re.compile(r'No such configuration property: "([^"]+)"')


def translated(properties: Mapping[str, str]) -> dict[str, Any]:
    """ValueError for security settings that cannot be honoured."""
    found: dict[str, Any] = secured(properties)
    for name, text in properties.items():
        if name in WITHOUT_MEANING or name.startswith(SECURITY):
            continue
        if name == "buffer.memory":
            found["queue.buffering.max.kbytes"] = max(1, int(text) // 1024)
        elif name == "partition.assignment.strategy":
            names = (one.strip().rpartition(".")[2] for one in text.split(","))
            found[name] = ",".join(ASSIGNORS.get(one, one) for one in names)
        else:
            found[RENAMED.get(name, name)] = text
    return found


def secured(properties: Mapping[str, str]) -> dict[str, Any]:
    protocol, tls, sasl = read_security(properties)
    found: dict[str, Any] = {"security.protocol": protocol}
    if tls is not None:
        found |= {
            "ssl.ca.location": tls.ca_file,
            "ssl.ca.pem": tls.ca_text,
            "ssl.certificate.location": tls.certificate_file,
            "ssl.certificate.pem": tls.certificate_text,
            "ssl.key.location": tls.key_file,
            "ssl.key.pem": tls.key_text,
            "ssl.key.password": tls.key_password,
            "ssl.endpoint.identification.algorithm": "https" if tls.check_host else "none",
        }
    if sasl is not None:
        found |= {
            "sasl.mechanism": sasl.mechanism,
            "sasl.username": sasl.username,
            "sasl.password": sasl.password,
        }
    return {name: text for name, text in found.items() if text}


def known(client_class: type[Producer] | type[Consumer], config: dict[str, Any]) -> dict[str, Any]:
    """The part of a configuration that librdkafka knows. ValueError for a value that it does not take."""
    config = dict(config)
    quiet = logging.getLogger("millstream.rest.none")
    quiet.setLevel(logging.CRITICAL)
    trial = (
        {"bootstrap.servers": "", "group.id": "trial"}
        if client_class is Consumer
        else {"bootstrap.servers": ""}
    )
    while True:
        try:
            client_class({**config, **trial}, logger=quiet)
            return config
        except KafkaException as error:
            text = error.args[0].str()
            unknown = NO_SUCH.search(text)
            if unknown is None or unknown[1] not in config:
                raise ValueError(text) from None
            log.warning("the setting %s is not known to Kafka's C client and has no effect", unknown[1])
            del config[unknown[1]]
