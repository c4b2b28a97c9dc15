"""What a request can be refused with, by Confluent's codes; and Kafka's errors turned into them."""

from typing import Any

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException

from millstream.http.errors import HttpError
from millstream.wire.errors import ErrorCode, KafkaError

KAFKA_ERROR, RETRIABLE = 50002, 50003
UNAUTHENTICATED, UNAUTHORIZED = 40101, 40301
UNKNOWN_TOPIC = "This server does not host this topic-partition."
NO_AUTHORIZER = "No Authorizer is configured."

_AUTHENTICATION = frozenset({58, ClientError._AUTHENTICATION})
_AUTHORIZATION = frozenset({29, 30, 31, 53, 65})
# The client requested something that cannot be, or that the broker is set up not to do.
_BAD_REQUEST = frozenset({-1, 24, 35, 37, 38, 39, 40, 42, 44, 36, 54, 73, ClientError._UNSUPPORTED_FEATURE})
_NOT_FOUND = frozenset({3, 17, 100, ClientError._UNKNOWN_TOPIC, ClientError._UNKNOWN_PARTITION})
_UNAVAILABLE = frozenset({8})
_LOCAL_RETRIABLE = frozenset(
    {
        ClientError._TRANSPORT,
        ClientError._ALL_BROKERS_DOWN,
        ClientError._TIMED_OUT,
        ClientError._MSG_TIMED_OUT,
        ClientError._TIMED_OUT_QUEUE,
        ClientError._QUEUE_FULL,
        ClientError._RESOLVE,
        ClientError._WAIT_COORD,
        ClientError._IN_PROGRESS,
        ClientError._PREV_IN_PROGRESS,
        ClientError._PURGE_QUEUE,
        ClientError._PURGE_INFLIGHT,
    }
)


class RestError(HttpError):
    """Answered as {"error_code": ..., "message": ...}."""


def http_error(status: int, message: str) -> RestError:
    return RestError(status, status, message)


def bad_request(detail: str) -> RestError:
    return RestError(400, 400, f"Bad Request: {detail}")


def not_found(message: str = "HTTP 404 Not Found") -> RestError:
    return RestError(404, 404, message)


def topic_not_found() -> RestError:
    return RestError(404, 40401, "Topic not found.")


def partition_not_found() -> RestError:
    return RestError(404, 40402, "Partition not found.")


def instance_not_found() -> RestError:
    return RestError(404, 40403, "Consumer instance not found.")


def unknown_topic() -> RestError:
    """As Kafka says it."""
    return RestError(404, 40403, UNKNOWN_TOPIC)


def format_mismatch() -> RestError:
    return RestError(
        406,
        40601,
        "The requested embedded data format does not match the deserializer for this consumer instance",
    )


def cannot_deserialize(message: str) -> RestError:
    return RestError(408, 40801, message)


def instance_exists() -> RestError:
    return RestError(
        409, 40902, "Consumer with specified consumer ID already exists in the specified consumer group."
    )


def illegal_state(message: str) -> RestError:
    return RestError(409, 40903, f"Illegal state: {message}")


def key_schema_missing() -> RestError:
    return RestError(422, 42201, "Request includes keys but does not include key schema")


def value_schema_missing() -> RestError:
    return RestError(422, 42202, "Request includes values but does not include value schema")


def invalid_consumer_config(message: str) -> RestError:
    return RestError(422, 42204, f"Invalid consumer configuration: {message}")


def invalid_schema(message: str) -> RestError:
    return RestError(422, 42205, f"Invalid schema: {message}")


def invalid_payload(message: str) -> RestError:
    return RestError(422, 42206, f"Payload error. {message}")


def serialization_failed(message: str) -> RestError:
    return RestError(422, 42207, f"Error serializing message. {message}")


def invalid_batch(message: str) -> RestError:
    return RestError(422, 42208, message)


def unprocessable(message: str) -> RestError:
    return RestError(422, 422, message)


def ended() -> RestError:
    """The login was refused while a request was being served."""
    return RestError(401, UNAUTHENTICATED, "Unauthorized")


def too_many_instances(limit: int) -> RestError:
    return RestError(429, 429, f"There are {limit} consumer instances already; delete some.")


def is_retriable(code: int) -> bool:
    if code < 0:
        return code in _LOCAL_RETRIABLE
    try:
        return bool(ErrorCode(code).retriable)
    except ValueError:
        return False


def for_code(code: int, message: str) -> RestError:
    """A Kafka error, of a broker or of librdkafka, as Confluent's proxy answers it."""
    if code in _NOT_FOUND:
        return RestError(404, 40403, UNKNOWN_TOPIC)
    if code in _BAD_REQUEST:
        return RestError(400, 40002, message)
    if code in _AUTHENTICATION:
        return RestError(401, UNAUTHENTICATED, message)
    if code in _AUTHORIZATION:
        return RestError(403, UNAUTHORIZED, message)
    if code in _UNAVAILABLE:
        return RestError(503, 50302, message)
    if is_retriable(code):
        return RestError(500, RETRIABLE, message)
    return RestError(500, KAFKA_ERROR, message)


def for_kafka(error: KafkaError) -> RestError:
    """Of our own client."""
    return for_code(int(error.code), str(error))


def for_client(error: Any) -> RestError:
    """Of librdkafka: a KafkaException or the KafkaError inside."""
    inner = error.args[0] if isinstance(error, KafkaException) else error
    if not isinstance(inner, ClientError):
        return RestError(500, KAFKA_ERROR, str(inner))
    return for_code(inner.code(), inner.str())


def in_record(error: Any) -> tuple[int, str]:
    """Code and message for one record of a produce request, whose errors have codes of their own."""
    inner = error.args[0] if isinstance(error, KafkaException) else error
    code = inner.code()
    if code in _AUTHENTICATION:
        return UNAUTHENTICATED, inner.str()
    if code in _AUTHORIZATION:
        return UNAUTHORIZED, inner.str()
    if is_retriable(code) or code in _NOT_FOUND:
        return RETRIABLE, inner.str()
    return KAFKA_ERROR, inner.str()
