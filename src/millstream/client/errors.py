"""What can go wrong between a client and a broker, besides the error codes that brokers send."""

from millstream.wire.errors import ErrorCode, KafkaError


class Unreachable(KafkaError):
    """No connection to a broker, or the connection broke. `again` says whether another try makes sense."""

    def __init__(self, message: str, again: bool = True) -> None:
        super().__init__(ErrorCode.network_exception, message)
        self.again = again


class TimedOut(KafkaError):
    """No answer in time. What the request was to do may have happened."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.request_timed_out, message)


def retriable(error: KafkaError) -> bool:
    """Whether the same request may succeed a moment later."""
    if isinstance(error, Unreachable):
        return error.again
    return bool(error.code.retriable)


def check(code: ErrorCode, message: str | None = None, subject: str = "") -> None:
    """Raise what a broker answered, unless it is `none`."""
    if code is not ErrorCode.none:
        raise KafkaError(code, describe(code, message, subject))


def describe(code: ErrorCode, message: str | None = None, subject: str = "") -> str:
    """The broker's own words if it sent any, else the code's name in a sentence."""
    if message:
        return message
    sentence = _SENTENCES.get(code, f"the broker answers {code.name.upper()}")
    return f"{subject}: {sentence}" if subject else sentence


_SENTENCES = {
    ErrorCode.delegation_token_request_not_allowed: (
        "delegation tokens are only for users who have logged in (SASL or a certificate), and not by a token"
    ),
    ErrorCode.delegation_token_auth_disabled: (
        "delegation tokens are switched off: set delegation.token.secret.key, the same on all brokers"
    ),
    ErrorCode.unknown_topic_or_partition: "this topic or partition does not exist",
    ErrorCode.offset_out_of_range: "the offset is outside of the log",
    ErrorCode.leader_not_available: "the partition has no leader at the moment",
    ErrorCode.not_leader_or_follower: "the broker does not lead this partition",
    ErrorCode.message_too_large: "the batch is larger than the topic's max.message.bytes",
    ErrorCode.not_enough_replicas: "fewer replicas are in sync than min.insync.replicas asks for",
    ErrorCode.invalid_topic_exception: "this is not a valid topic name",
    ErrorCode.topic_authorization_failed: "not authorized for this topic",
    ErrorCode.cluster_authorization_failed: "not authorized for the cluster",
    ErrorCode.unsupported_version: "the broker does not know this version of the request",
    ErrorCode.corrupt_message: "the broker found the batch damaged",
    ErrorCode.invalid_record: "the broker refuses a record of the batch",
    ErrorCode.request_timed_out: "the broker could not finish in time",
    ErrorCode.kafka_storage_error: "the broker cannot write to its disk",
}
