"""What a unit can fail with that concerns the host."""

from millstream.wire.errors import ErrorCode, KafkaError

_TOO_LARGE = (ErrorCode.message_too_large, ErrorCode.record_list_too_large)


class FinalError(Exception):
    """What a second try does not mend: the unit has failed at once."""


class SparkLost(Exception):
    """The session on which the host was to run is of no use any more."""


def is_final(error: Exception) -> bool:
    """A record that no broker takes is as large at the next try."""
    return isinstance(error, FinalError) or (isinstance(error, KafkaError) and error.code in _TOO_LARGE)
