"""SCRAM credentials of users: the command that changes them, and what it comes to (KIP-554)."""

from collections.abc import Sequence
from dataclasses import dataclass

from millstream.cluster.commands import OK, Command, Result
from millstream.cluster.context import Decision
from millstream.cluster.image import Image
from millstream.cluster.metadata_records import Record
from millstream.cluster.security_records import Scram, ScramGone
from millstream.wire.errors import ErrorCode, KafkaError

MECHANISMS = (1, 2)
MIN_ITERATIONS, MAX_ITERATIONS = 4096, 16384
MAX_CREDENTIALS = 100_000
MAX_CHANGES = 10_000  # in one request
MAX_NAME = 1000
MAX_SALT = 1000  # hex digits


@dataclass(slots=True, eq=False)
class AlterScram(Command[dict[str, Result]]):
    """Reply: a Result per user. What is wrong with one credential leaves all of that user as it was."""

    upsertions: Sequence[Scram] = ()
    deletions: Sequence[ScramGone] = ()

    def __repr__(self) -> str:
        return f"AlterScram({len(self.upsertions)} upsertions, {len(self.deletions)} deletions)"


def alter_scram(image: Image, command: AlterScram) -> Decision:
    changes: list[Scram | ScramGone] = [*command.deletions, *command.upsertions]
    seen: set[tuple[str, int]] = set()
    replies: dict[str, Result] = {change.user: OK for change in changes}
    new = 0
    for change in changes:
        try:
            # the first thing that is wrong with a user is told, as in Kafka
            if (change.user, change.mechanism) in seen:
                raise KafkaError(
                    ErrorCode.duplicate_resource,
                    "A user credential cannot be altered twice in the same request",
                )
            seen.add((change.user, change.mechanism))
            _check(image, change)
            new += isinstance(change, Scram) and (change.user, change.mechanism) not in image.scram
            if len(image.scram) + new > MAX_CREDENTIALS:
                raise KafkaError(
                    ErrorCode.unacceptable_credential,
                    f"there are {MAX_CREDENTIALS} credentials, the most that are kept",
                )
            if len(seen) > MAX_CHANGES:
                raise KafkaError(
                    ErrorCode.policy_violation, f"more than {MAX_CHANGES} credentials in one request"
                )
        except KafkaError as problem:
            if replies[change.user].ok:
                replies[change.user] = Result(problem.code, problem.message)
    records: list[Record] = [change for change in changes if replies[change.user].ok]
    return Decision(records, replies)


def _check(image: Image, change: Scram | ScramGone) -> None:
    if not change.user or len(change.user) > MAX_NAME:
        raise KafkaError(ErrorCode.unacceptable_credential, "Username must not be empty")
    if change.mechanism not in MECHANISMS:
        raise KafkaError(ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism")
    if isinstance(change, ScramGone):
        if (change.user, change.mechanism) not in image.scram:
            raise KafkaError(
                ErrorCode.resource_not_found, "Attempt to delete a user credential that does not exist"
            )
        return
    if change.iterations < MIN_ITERATIONS:
        raise KafkaError(ErrorCode.unacceptable_credential, "Too few iterations")
    if change.iterations > MAX_ITERATIONS:
        raise KafkaError(ErrorCode.unacceptable_credential, "Too many iterations")
    if not change.salt or len(change.salt) > MAX_SALT:
        raise KafkaError(ErrorCode.unacceptable_credential, "The salt must not be empty, nor very long")
