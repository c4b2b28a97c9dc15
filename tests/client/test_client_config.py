import pickle

import pytest

from millstream.client.config import ClientConfig, parse_addresses


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost:9092", (("localhost", 9092),)),
        ("a:1,b:2", (("a", 1), ("b", 2))),
        (" a:1 , b:2 ,", (("a", 1), ("b", 2))),
        ("broker", (("broker", 9092),)),
        ("[::1]:9093", (("::1", 9093),)),
        ("[::1]", (("::1", 9092),)),
        ("PLAINTEXT://10.0.0.1:9094", (("10.0.0.1", 9094),)),
    ],
)
def test_addresses(text, expected):
    assert parse_addresses(text) == expected


@pytest.mark.parametrize("text", ["", ",", "host:", "host:abc", ":9092", "host:0", "host:70000"])
def test_bad_addresses_say_what_to_write(text):
    with pytest.raises(ValueError, match="host:port"):
        parse_addresses(text)


def test_properties_of_a_kafka_client():
    config = ClientConfig.of(
        "a:1",
        {
            "client.id": "me",
            "request.timeout.ms": "1500",
            "default.api.timeout.ms": "5000",
            "retry.backoff.ms": "20",
            "key.serializer": "whatever",
        },
    )
    assert (config.client_id, config.request_timeout, config.total_timeout, config.retry_backoff) == (
        "me",
        1.5,
        5,
        0.02,
    )
    assert ClientConfig.of("", {"bootstrap.servers": "b:2"}).bootstrap == (("b", 2),)
    assert ClientConfig.of("a:1", client_id="tool").client_id == "tool"


def test_what_cannot_be_honoured_is_an_error():
    with pytest.raises(ValueError, match="SASL_SSL"):
        ClientConfig.of("a:1", {"security.protocol": "SASL_SSL"})
    with pytest.raises(ValueError, match=r"request\.timeout\.ms"):
        ClientConfig.of("a:1", {"request.timeout.ms": "soon"})


def test_config_travels_by_pickle():
    config = ClientConfig.of("a:1,b:2", {"client.id": "me"})
    assert pickle.loads(pickle.dumps(config)) == config  # noqa: S301
