"""Frames that are wrong. Every expectation here was taken from Apache Kafka 4.2 (MILLSTREAM_AGAINST=HOST:PORT
runs it there).

A frame that makes no sense closes the connection with one line in the log; whoever else is connected notices
nothing.
"""

import socket
import struct

import pytest

from .raw_frames import HEADER, Raw, Target, framed, header, request, target

__all__ = ["target"]  # the fixture

NO_TOPICS = struct.pack(">i", 0)
METADATA_1 = header(3, 1, 7, flexible=False)
METADATA_9 = header(3, 9, 7, flexible=True)
NO_EXTRAS = {
    "allow_auto_topic_creation": False,
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}

CLOSED = {
    "a negative length": struct.pack(">i", -1),
    "the most negative length": struct.pack(">i", -(2**31)),
    "no content": struct.pack(">i", 0),
    "one byte over socket.request.max.bytes": struct.pack(">i", 104_857_601),
    "a length of 2 GB": struct.pack(">i", 2**31 - 1),
    "two bytes": framed(b"ab"),
    "half a header": framed(METADATA_1[:8]),
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS": bytes.fromhex("16030100a1010000") + b"x" * 200,
    "an API nobody knows": framed(header(999, 0, 1, flexible=False)),
    "a negative API": framed(header(-1, 0, 1, flexible=False)),
    "an API that Kafka 4 dropped": framed(header(4, 0, 1, flexible=False)),
    "a version from the future": framed(header(3, 99, 7, flexible=True) + b"\0" * 10),
    "a negative version": framed(header(3, -1, 7, flexible=False) + NO_TOPICS),
    "Produce v0": framed(header(0, 0, 7, flexible=False) + struct.pack(">hii", -1, 1000, 0)),
    "Produce v2": framed(header(0, 2, 7, flexible=False) + struct.pack(">hii", -1, 1000, 0)),
    "Fetch v3": framed(header(1, 3, 7, flexible=False) + b"\0" * 30),
    "ApiVersions without its names": framed(header(18, 3, 7, flexible=True) + b"\0\0\0"),
    "an array of 2 billion in 30 bytes": framed(METADATA_1 + struct.pack(">i", 2**31 - 1)),
    "a compact array of 2 billion": framed(METADATA_9 + b"\xff\xff\xff\xff\x07"),
    "a varint without end": framed(METADATA_9 + b"\xff" * 12),
    "a string of -7 bytes": framed(METADATA_1 + struct.pack(">ih", 1, -7)),
    "null where null may not be": framed(METADATA_1 + struct.pack(">ih", 1, -1)),
    "a string longer than the frame": framed(METADATA_1 + struct.pack(">ih", 1, 50) + b"abc"),
    "a client id longer than the frame": framed(HEADER.pack(3, 1, 7, 500) + b"abc"),
    "billions of tags in the header": framed(HEADER.pack(3, 9, 7, 1) + b"a" + b"\xff\xff\xff\xff\x07"),
    "an empty body": framed(METADATA_9),
}


@pytest.mark.parametrize("what", list(CLOSED))
def test_closes_the_connection(target: Target, what: str) -> None:
    with target.one_log_line(), Raw(target.bootstrap) as connection:
        connection.send(CLOSED[what])
        assert connection.closed()
    target.is_fine()


ANSWERED = {
    # the answer to ApiVersions from the future: in version 0, with the one range that the client needs to ask
    # again
    "ApiVersions v99": (
        framed(header(18, 99, 7, flexible=True) + b"\x04abc\x04abc\0"),
        struct.pack(">ihihhh", 7, 35, 1, 18, 0, 4),
    ),
    "ApiVersions v-1": (
        framed(header(18, -1, 7, flexible=False)),
        struct.pack(">ihihhh", 7, 35, 1, 18, 0, 4),
    ),
    "ApiVersions with a bad name": (
        framed(header(18, 3, 7, flexible=True) + b"\x04a b\x04abc\0"),
        struct.pack(">ih", 7, 42) + b"\x01" + b"\0\0\0\0",
    ),
}


@pytest.mark.parametrize("what", list(ANSWERED))
def test_is_answered_as_kafka_answers(target: Target, what: str) -> None:
    sent, expected = ANSWERED[what]
    with Raw(target.bootstrap) as connection:
        connection.send(sent)
        answer = connection.receive()
        assert answer is not None
        assert answer[: len(expected)] == expected
        # and the connection lives on
        assert connection.ask("api_versions", 0).error_code == 0
    target.is_fine()


LENIENT = {
    "a client id of -5 bytes": framed(HEADER.pack(3, 1, 7, -5) + NO_TOPICS),
    "no client id": framed(HEADER.pack(3, 1, 7, -1) + NO_TOPICS),
    "a client id that is not UTF-8": framed(HEADER.pack(3, 1, 7, 2) + b"\xff\xfe" + NO_TOPICS),
    "a topic name that is not UTF-8": framed(METADATA_1 + struct.pack(">ih", 1, 2) + b"\xff\xfe"),
    "an array of -5": framed(METADATA_1 + struct.pack(">i", -5)),
    "bytes after the end of the request": framed(METADATA_1 + NO_TOPICS + b"extra"),
    "ApiVersions v99 with an old header": framed(header(18, 99, 7, flexible=False)),
}


@pytest.mark.parametrize("what", list(LENIENT))
def test_is_answered_or_closed(target: Target, what: str) -> None:
    """Kafka answers some of these; closing is fine, too. No client of good will sends them."""
    with Raw(target.bootstrap) as connection:
        connection.send(LENIENT[what])
        answer = connection.receive()
        assert answer is None or struct.unpack_from(">i", answer)[0] == 7
    target.is_fine()


def test_a_client_without_an_id_is_served(target: Target) -> None:
    with Raw(target.bootstrap) as connection:
        connection.send(LENIENT["no client id"])
        answer = connection.receive()
        assert answer is not None
        assert struct.unpack_from(">i", answer)[0] == 7


def test_a_frame_that_comes_byte_by_byte_is_served(target: Target) -> None:
    with Raw(target.bootstrap) as connection:
        connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in request("metadata", 9, topics=[], **NO_EXTRAS):
            connection.send(bytes([byte]))
        assert len(connection.answer("metadata", 9).brokers) == 1
    target.is_fine()


def test_a_frame_cut_anywhere_harms_nobody(target: Target) -> None:
    whole = request("metadata", 9, topics=[{"name": "x"}], **NO_EXTRAS)
    for size in range(len(whole)):
        with Raw(target.bootstrap) as connection:
            connection.send(whole[:size])
            connection.socket.shutdown(socket.SHUT_WR)
            assert connection.closed()
    target.is_fine()


def test_a_frame_whose_content_is_cut_short_is_closed(target: Target) -> None:
    content = request("metadata", 9, topics=[{"name": "x"}], **NO_EXTRAS)[4:]
    for size in range(0, len(content) - 1):
        with Raw(target.bootstrap) as connection:
            connection.send(framed(content[:size]))
            assert connection.closed()
    target.is_fine()


def test_requests_sent_in_one_go_are_answered_in_order(target: Target) -> None:
    with Raw(target.bootstrap) as connection:
        connection.send(b"".join(request("api_versions", 0, number) for number in range(1, 101)))
        for number in range(1, 101):
            answer = connection.receive()
            assert answer is not None
            assert struct.unpack_from(">i", answer)[0] == number
