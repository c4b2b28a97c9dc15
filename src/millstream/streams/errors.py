"""What can go wrong in an application, in one line each."""

from typing import Self

from millstream.host.errors import FinalError


class StreamsError(FinalError):
    """The base of them all. None of them goes away when a task is tried again."""

    def at(self, where: str) -> Self:
        """The same error, which now says where it happened."""
        self.args = (f"{where}: {type(self).__name__}: {self}",)
        return self


class TopologyError(StreamsError):
    """The topology cannot be built like this."""


class SerdeMissing(TopologyError):
    """A value reached a topic or a store and nobody said how to write it."""


class TakenOver(StreamsError):
    """Another process runs the application now."""


class ProcessingFailed(StreamsError):
    """A record could not be read or processed, and the application is set to stop then."""


class InvalidTimestamp(StreamsError):
    """A record has a timestamp below 0, and its source has no extractor that makes a valid one."""


class BufferFull(StreamsError):
    """A suppression buffer reached its limit and is set to stop then."""
