"""Commands that wait for the controller's reply."""

import asyncio
from typing import Any, NamedTuple

from millstream.cluster.commands import Command
from millstream.wire.errors import ErrorCode, KafkaError


class PendingCommand(NamedTuple):
    command: Command[Any]
    future: asyncio.Future[Any]
    is_large: bool


def answer(batch: list[PendingCommand], replies: list[Any]) -> None:
    """Gives each its reply; a `KafkaError` is raised at whoever waits. Those who gave up get none."""
    for pending, reply in zip(batch, replies, strict=True):
        if pending.future.done():
            continue
        if isinstance(reply, KafkaError):
            pending.future.set_exception(reply)
        else:
            pending.future.set_result(reply)


def not_controller(why: str = "this broker is not the controller") -> KafkaError:
    return KafkaError(
        ErrorCode.not_controller, f"This is not the correct controller for this cluster: {why}."
    )
