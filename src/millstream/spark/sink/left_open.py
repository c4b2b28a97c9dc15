"""What a query left open when it was stopped.

Spark stops a query by cancelling its job and then interrupting its thread. By then the thread may be in
`abort`, or in `commit`: the interrupt closes its socket, Spark kills the Python process behind it, and calls
`abort` a last time in a thread that is still interrupted, which fails at once. A driver that dies calls
nothing at all. The transactions of that batch stay open, and readers with read_committed wait for them,
until the query runs again or `kafka.transaction.timeout.ms` is over.

Whoever knows that a query has ended can end them at once: every transactional id of the query is taken over,
which aborts what is open under it and fences a task that has not noticed yet that it was cancelled. A task
that has not taken its id when this looks is missed.
"""

from collections.abc import Iterable

from millstream.client.cluster import Cluster
from millstream.client.transactional import TransactionalProducer
from millstream.client.transactions import Transactions
from millstream.spark.sink.task import transactional_id_prefix

OPEN = "Ongoing"


def abort_left_open(cluster: Cluster, query_ids: Iterable[str]) -> None:
    """For queries that have ended, by their ids (`query.id`, which outlives a restart). Whatever another run
    of such a query has under way is undone, too, and replayed by that run."""
    prefixes = tuple(transactional_id_prefix(query) for query in query_ids)
    if not prefixes:
        return
    found = [one for one in Transactions(cluster).listed() if one.transactional_id.startswith(prefixes)]
    for one in sorted(found, key=lambda one: one.state != OPEN):
        TransactionalProducer(cluster, one.transactional_id).begin()
