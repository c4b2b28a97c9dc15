"""GSSAPI with a real KDC: kafka-python logs in by a ticket, and the broker knows who it is."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

from millstream.testing import Broker, BrokerFailed
from tests.support import kerberos
from tests.support.kerberos import REALM, RunningKdc
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop_slow

MODULE = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningKdc]:
    if absent := kerberos.missing():
        pytest.skip(f"{', '.join(absent)}: apt-get install krb5-kdc krb5-admin-server krb5-user")
    pytest.importorskip("gssapi", reason="pip install 'millstream[kerberos]' (needs libkrb5-dev)")
    with RunningKdc(tmp_path_factory.mktemp("kdc")) as running:
        before = dict(os.environ)
        os.environ.update(running.env)
        yield running
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture(scope="module")
def broker(kdc: RunningKdc) -> Iterator[Broker]:
    keytab = kdc.keytab("kafka/localhost")
    jaas = f'{MODULE} keyTab="{keytab}" principal="kafka/localhost@{REALM}";'
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "GSSAPI",
        "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": jaas,
        "sasl.kerberos.principal.to.local.rules": "RULE:[2:$1-of-$2](probe-of-.*)/U,DEFAULT",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:alice;User:ANONYMOUS",
        "connection.failed.authentication.delay.ms": 0,
        "millstream.log.level": "debug",
    }
    with Broker(settings) as running:
        yield running


def client(broker: Broker) -> dict[str, object]:
    return {
        "bootstrap_servers": broker.bootstrap_servers.split(",")[0],
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "GSSAPI",
        "sasl_kerberos_service_name": "kafka",
        "sasl_kerberos_domain_name": "localhost",
    }


def test_a_ticket_is_a_user(kdc: RunningKdc, broker: Broker) -> None:
    kdc.log_in("alice")
    producer = KafkaProducer(**client(broker))
    assert producer.send("by-ticket", b"hello").get(60).offset == 0
    producer.close()
    consumer = KafkaConsumer("by-ticket", auto_offset_reset="earliest", **client(broker))
    assert next(consumer).value == b"hello"
    consumer.close()


def test_others_have_no_rights(kdc: RunningKdc, broker: Broker) -> None:
    kdc.log_in("bob")
    admin = KafkaAdminClient(**client(broker))
    assert "by-ticket" not in admin.list_topics()
    admin.close()


def test_a_rule_gives_the_name(kdc: RunningKdc, broker: Broker) -> None:
    kdc.log_in("probe/there")
    admin = KafkaAdminClient(**client(broker))
    admin.list_topics()
    admin.close()
    wait_until(lambda: "User:PROBE-OF-THERE" in broker.log)


def test_a_keytab_without_the_key(kdc: RunningKdc) -> None:
    jaas = f'{MODULE} keyTab="{kdc.keytab("other/localhost")}" principal="kafka/elsewhere@{REALM}";'
    broker = Broker(
        {
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
            "security.inter.broker.protocol": "SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "GSSAPI",
            "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": jaas,
        }
    )
    with pytest.raises(BrokerFailed, match="There is no key of kafka/elsewhere"):
        broker.start()
    broker.close()
