"""What a connection does when all is well, and when the other side is old, mute, gone or not Kafka at all."""

import socket
import struct
from types import SimpleNamespace

import pytest

from millstream.client import ClientConfig, Cluster, Connection, TimedOut, Unreachable
from millstream.wire.errors import ErrorCode, KafkaError
from millstream.wire.messages import codec

from .scripted_broker import ScriptedBroker, versions

API_VERSIONS, METADATA = 18, 3
ALL_TOPICS = {
    "topics": None,
    "allow_auto_topic_creation": False,
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}


def config(port: int, **changes: float) -> ClientConfig:
    return ClientConfig((("127.0.0.1", port),), request_timeout=5, total_timeout=5, **changes)


def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_highest_common_version_is_used():
    asked = []

    def answer(api, version, correlation_id, body):
        if api == API_VERSIONS:
            return versions(correlation_id, {METADATA: (0, 9), 0: (0, 99)})
        asked.append((api, version))
        form = codec(api, version)
        empty = form.answer(
            brokers=(), cluster_id="c", controller_id=-1, topics=(), cluster_authorized_operations=0
        )
        return form.pack(correlation_id, empty)

    with (
        ScriptedBroker(answer) as broker,
        Connection(config(broker.port), "127.0.0.1", broker.port) as connection,
    ):
        assert connection.request("metadata", **ALL_TOPICS).cluster_id == "c"
        assert asked == [(METADATA, 9)]
        assert connection.version("metadata", up_to=4) == 4
        assert connection.version("produce") == 13
        with pytest.raises(KafkaError, match="does not offer fetch") as caught:
            connection.version("fetch")
        assert caught.value.code is ErrorCode.unsupported_version
        with pytest.raises(KafkaError, match="versions 0 to 9"):
            connection.version("metadata", at_least=10)


def test_ctrl_c_behind_the_last_byte_of_a_request():
    """The request is out, but `send` never returns: whoever takes the connection next must see that an answer
    is outstanding, or it would take that for its own."""
    usable = []

    def answer(api, version, correlation_id, body):
        return versions(correlation_id, {API_VERSIONS: (0, 3)})

    with (
        ScriptedBroker(answer) as broker,
        Connection(config(broker.port), "127.0.0.1", broker.port) as connection,
    ):
        assert connection.usable
        transport = connection._transport

        def send(parts, deadline):
            transport.send(parts, deadline)
            usable.append(connection.usable)

        connection._transport = SimpleNamespace(
            send=send, receive_into=transport.receive_into, close=transport.close
        )
        connection.request("api_versions", client_software_name="test", client_software_version="1")
        assert usable == [False] and connection.usable


def test_a_broker_too_old_for_the_question_is_asked_again():
    def answer(api, version, correlation_id, body):
        if version > 0:
            return versions(correlation_id, {API_VERSIONS: (0, 0)}, version=0, error=35)
        return versions(correlation_id, {METADATA: (0, 4)}, version=0)

    with (
        ScriptedBroker(answer) as broker,
        Connection(config(broker.port), "127.0.0.1", broker.port) as connection,
    ):
        assert connection.versions == {METADATA: (0, 4)}
        assert broker.connections == 1


def test_nobody_there():
    port = unused_port()
    with pytest.raises(Unreachable, match=f"127.0.0.1:{port}: connection refused"):
        Cluster(config(port)).refresh()


def test_unknown_host():
    with pytest.raises(Unreachable, match=r"no-such-host\.invalid:9092: the host name is unknown"):
        Cluster(ClientConfig.of("no-such-host.invalid")).refresh()


def test_second_address_is_tried():
    def answer(api, version, correlation_id, body):
        return versions(correlation_id, {METADATA: (0, 9)})

    with ScriptedBroker(answer) as broker:
        two = ClientConfig((("127.0.0.1", unused_port()), ("127.0.0.1", broker.port)))
        with Cluster(two) as cluster:
            assert cluster.any().address == broker.address


def test_something_that_is_not_kafka():
    with ScriptedBroker(lambda *_: b"HTTP/1.1 400 Bad Request\r\n\r\n") as broker:
        with pytest.raises(Unreachable, match="does not speak Kafka") as caught:
            Connection(config(broker.port), "127.0.0.1", broker.port)
        assert not caught.value.again


def test_connection_closed_at_once():
    expected = r"closed the connection .*security\.protocol=PLAINTEXT right"
    with ScriptedBroker(lambda *_: None) as broker, pytest.raises(Unreachable, match=expected):
        Connection(config(broker.port), "127.0.0.1", broker.port)


def test_silence_is_a_timeout():
    with ScriptedBroker(lambda *_: b"") as broker, pytest.raises(TimedOut, match=broker.address):
        Connection(config(broker.port, connect_timeout=0.2), "127.0.0.1", broker.port)


def test_wrong_correlation_id_ends_the_connection():
    def answer(api, version, correlation_id, body):
        return versions(correlation_id + 1, {METADATA: (0, 9)})

    with ScriptedBroker(answer) as broker, pytest.raises(Unreachable):
        Connection(config(broker.port), "127.0.0.1", broker.port)


def test_nonsense_in_an_answer_is_a_kafka_error():
    def answer(api, version, correlation_id, body):
        if api == API_VERSIONS:
            return versions(correlation_id, {METADATA: (0, 12)})
        return struct.pack(">iiB", 5 + 6, correlation_id, 0) + b"\xff" * 6

    with (
        ScriptedBroker(answer) as broker,
        Cluster(config(broker.port)) as cluster,
        pytest.raises(KafkaError, match="metadata makes no sense"),
    ):
        cluster.refresh()


def test_unknown_error_code_is_a_kafka_error():
    def answer(api, version, correlation_id, body):
        frame = bytearray(versions(correlation_id, {METADATA: (0, 9)}))
        frame[8:10] = b"\x7f\x00"
        return bytes(frame)

    with ScriptedBroker(answer) as broker, pytest.raises(KafkaError):
        Connection(config(broker.port), "127.0.0.1", broker.port)


def test_closed_connection_says_so():
    def answer(api, version, correlation_id, body):
        return versions(correlation_id, {METADATA: (0, 9)}) if api == API_VERSIONS else None

    with ScriptedBroker(answer) as broker:
        connection = Connection(config(broker.port), "127.0.0.1", broker.port)
        with pytest.raises(Unreachable, match="closed the connection"):
            connection.request("metadata", **ALL_TOPICS)
        assert connection.closed
        with pytest.raises(Unreachable, match="is closed"):
            connection.request("metadata", **ALL_TOPICS)


def metadata_with_a_new_tag(correlation_id, size):
    """An answer of version 12 that ends in a tagged field which nobody knows yet, made long by one topic's
    name."""
    form = codec(METADATA, 12)
    topic = form.make(
        "MetadataResponseTopic",
        error_code=ErrorCode.none,
        name="t" * size,
        topic_id=None,
        is_internal=False,
        partitions=(),
        topic_authorized_operations=0,
    )
    answer = form.answer(brokers=(), cluster_id="c", controller_id=-1, topics=(topic,))
    frame = bytearray(form.pack(correlation_id, answer))
    assert frame[-1] == 0
    frame[-1:] = b"\x01\x63\x03new"  # one tag, number 99, three bytes
    frame[:4] = struct.pack(">i", len(frame) - 4)
    return bytes(frame)


@pytest.mark.parametrize("size", [1, 30_000])
def test_fields_of_the_future_are_ignored(size, monkeypatch):
    monkeypatch.setattr("millstream.client.messages.WALKED_FIRST", 10_000)

    def answer(api, version, correlation_id, body):
        if api == API_VERSIONS:
            return versions(correlation_id, {METADATA: (0, 12)})
        return metadata_with_a_new_tag(correlation_id, size)

    with ScriptedBroker(answer) as broker, Cluster(config(broker.port)) as cluster:
        assert cluster.refresh() == {}
        assert cluster.cluster_id == "c"


def test_impossible_counts_do_not_end_the_process():
    def answer(api, version, correlation_id, body):
        if api == API_VERSIONS:
            return versions(correlation_id, {METADATA: (0, 12)})
        body = b"\0" * 5 + b"\xff\xff\xff\xff\x0f" + b"\0" * 8  # no tags, no throttling, four billion brokers
        return struct.pack(">ii", len(body) + 4, correlation_id) + body

    with (
        ScriptedBroker(answer) as broker,
        Cluster(config(broker.port)) as cluster,
        pytest.raises(KafkaError, match="metadata makes no sense"),
    ):
        cluster.refresh()
