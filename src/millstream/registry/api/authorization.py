"""Readers and writers of subjects, where callers are users of the cluster.

The ACLs of the topic that a subject belongs to decide, as in Confluent's Topic ACL authorizer: READ on the
topic reads its subjects, WRITE changes them. `orders-key` and `orders-value` belong to the topic `orders`, in
every context; any other subject to a topic of its own name, whether that exists or not. What concerns no
single subject needs DESCRIBE on the cluster to read and ALTER to change; ALTER allows everything.

`authorize` runs after the route is known, with the same parameters as the resource. A resource replaces an
alias before it first waits for anything: later the alias might stand for a subject that nobody asked about. A
schema that is named by its id is judged by `readable_users`, for only the resource knows which one it is.
Whoever sends a schema has to be able to read the subjects that its references name, and whoever wants a
schema with its references put in place all that they lead to: else a reference would read for the caller.
"""

from collections.abc import Callable, Iterable

from fastapi import Request

from millstream.http.cluster_authentication import caller_of
from millstream.http.cluster_login import Caller
from millstream.registry import contexts, errors
from millstream.registry.api.responses import service_of
from millstream.registry.schema_records import Version
from millstream.registry.topic_authorizer import TopicAuthorizer
from millstream.schemas import Reference
from millstream.wire.acls import Operation
from millstream.wire.errors import KafkaError

READABLE = "millstream.registry.readable"
# For everybody who has logged in.
OPEN = frozenset(
    {
        "/",
        "/health",
        "/schemas/types",
        "/v1/metadata/id",
        "/v1/metadata/version",
        "/v1/metadata/deployment",
        "/dek-registry/v1/keks",
        "/dek-registry/v1/keks/{name}",
    }
)
# The answer has only what the caller may read.
LISTS = frozenset({"/subjects", "/schemas"})
BY_ID = ("/schemas/ids/", "/schemas/guids/")
LOOK_UP = "/subjects/{subject:subject}"
COMPATIBILITY = "/compatibility/"


def topic_of(subject: str) -> str:
    name = contexts.parse(subject).name
    for suffix in ("-key", "-value"):
        if name.endswith(suffix) and name != suffix:
            return name[: -len(suffix)]
    return name


async def authorize(request: Request) -> None:
    """A dependency of every resource: 403 for a caller who may not."""
    caller = caller_of(request.scope)
    if caller is None or caller.may(Operation.ALTER):
        return
    route: str = request.scope["route"].path
    reads = request.method in ("GET", "HEAD")
    if reads and (route in OPEN or route.startswith(BY_ID)):
        return
    if reads and route in LISTS:
        state = service_of(request).state
        request.scope[READABLE] = await _readable(request, caller, state.versions)
        return
    subjects = _subjects(request)
    if subjects:
        posts_to_look = request.method == "POST" and (route == LOOK_UP or route.startswith(COMPATIBILITY))
        needed = Operation.READ if reads or posts_to_look else Operation.WRITE
        asked: list[str] = []
        while subjects != asked:
            # An alias may have changed while the brokers were asked.
            asked = subjects
            await require(request, needed, asked)
            subjects = _subjects(request)
        return
    needed = Operation.DESCRIBE if reads else Operation.ALTER
    if not caller.may(needed):
        raise errors.denied_globally(needed.name)


async def require(request: Request, needed: Operation, subjects: Iterable[str]) -> None:
    """403 for a caller who may not do this with all of the subjects."""
    caller = caller_of(request.scope)
    if caller is None or caller.may(Operation.ALTER):
        return
    subjects = list(subjects)
    found = await _operations(request, caller, subjects)
    for subject in subjects:
        if not found[topic_of(subject)] >> needed & 1:
            raise errors.denied(needed.name.title(), subject)


async def require_references(request: Request, references: tuple[Reference, ...], subject: str) -> None:
    """403 for a caller who may not read what the references of a schema for this subject name."""
    if references and caller_of(request.scope) is not None:
        named = {contexts.within(reference.subject, subject) for reference in references}
        if _puts_references_in_place(request):
            named |= service_of(request).queries.referred_subjects(references, subject)
        await require(request, Operation.READ, sorted(named))


async def require_resolvable(request: Request, version: Version) -> None:
    """The same for a registered schema, if the answer has more of its references than their names."""
    if _puts_references_in_place(request):
        await require_references(request, version.content.references, version.subject)


def _puts_references_in_place(request: Request) -> bool:
    return bool(request.query_params.get("format", "").strip() or request.query_params.getlist("findTags"))


def require_alter(request: Request) -> None:
    caller = caller_of(request.scope)
    if caller is not None and not caller.may(Operation.ALTER):
        raise errors.denied_globally(Operation.ALTER.name)


def is_readable(request: Request) -> Callable[[str], bool]:
    """Whether the caller of a list may read a subject."""
    found: Callable[[str], bool] | None = request.scope.get(READABLE)
    return found or (lambda _subject: True)


async def readable_users(request: Request, users: Iterable[Version]) -> list[Version]:
    """The versions among those with one schema that the caller may read; 403 if there are some, but none for
    the caller."""
    found = list(users)
    caller = caller_of(request.scope)
    if caller is None or caller.may(Operation.ALTER):
        return found
    may = await _readable(request, caller, {one.subject for one in found})
    kept = [one for one in found if may(one.subject)]
    if found and not kept:
        raise errors.denied("Read", found[0].subject, named=False)
    return kept


def _subjects(request: Request) -> list[str]:
    """What a path names, and what that is an alias for. Empty for a context without a subject."""
    given = request.path_params.get("subject")
    if not given or not contexts.parse(given).name:
        return []
    service = service_of(request)
    names = (contexts.normalize(given), service.subject(given), service.subject(given, of_deks=True))
    return list(dict.fromkeys(names))


async def _readable(request: Request, caller: Caller, subjects: Iterable[str]) -> Callable[[str], bool]:
    found = await _operations(request, caller, subjects)
    return lambda subject: bool(found.get(topic_of(subject), 0) >> Operation.READ & 1)


async def _operations(request: Request, caller: Caller, subjects: Iterable[str]) -> dict[str, int]:
    authorizer: TopicAuthorizer = request.app.state.authorizer
    try:
        return await authorizer.operations(caller, {topic_of(subject) for subject in subjects})
    except KafkaError as error:
        raise errors.operations_unknown(str(error)) from None
