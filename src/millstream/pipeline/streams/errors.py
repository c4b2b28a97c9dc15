"""What can go wrong in an application, in one line each."""


class StreamsError(Exception):
    """The base of them all."""


class TopologyError(StreamsError):
    """The topology cannot be built like this."""


class SerdeMissing(TopologyError):
    """A value reached a topic or a store and nobody said how to write it."""


class ProcessingFailed(StreamsError):
    """A record could not be read or processed, and the application is set to stop then."""


class BufferFull(StreamsError):
    """A suppression buffer reached its limit and is set to stop then."""
