"""Settings that are known, checked and described, but do nothing so far: which, and why.

They keep their rows so that a server.properties made for Kafka is read without a complaint about every line; what has no
effect is said once when the broker starts, and is listed apart on the reference page. A part that gets built takes its
names out of here.
"""

_NO_TLS = "TLS and SASL are not served yet; a listener that asks for them is refused at start."
_NO_RIGHTS = "There are no ACLs and no delegation tokens yet."
_NO_REPLICAS = "There is one broker: nothing is replicated yet."
_NO_QUOTAS = "There are no quotas yet."
_AT_ONCE = "Written at once, in the loop; there is nothing to wait for."
_ONE_THREAD = "The broker has one loop and a few helper threads; there is no pool to size."

_BY_REASON: dict[str, tuple[str, ...]] = {
    _NO_TLS: ("ssl.", "sasl.", "connection.failed.authentication.delay.ms", "connections.max.reauth.ms"),
    _NO_RIGHTS: ("super.users", "allow.everyone.if.no.acl.found", "delegation.token."),
    _NO_REPLICAS: (
        "auto.leader.rebalance.enable",
        "controlled.shutdown.enable",
        "controller.socket.timeout.ms",
        "follower.replication.throttled.",
        "initial.broker.registration.timeout.ms",
        "leader.imbalance.",
        "leader.replication.throttled.",
        "num.replica.fetchers",
        "replica.alter.log.dirs.io.max.bytes.per.second",
        "replica.fetch.",
        "replica.high.watermark.checkpoint.interval.ms",
        "replica.selector.class",
        "replica.socket.receive.buffer.bytes",
        "request.timeout.ms",
        "socket.connection.setup.timeout.",
    ),
    _NO_QUOTAS: (
        "alter.log.dirs.replication.quota.",
        "controller.quota.window.",
        "max.connection.creation.rate",
        "quota.window.",
        "replication.quota.window.",
    ),
    _AT_ONCE: (
        "group.coordinator.append.linger.ms",
        "offsets.commit.timeout.ms",
    ),
    _ONE_THREAD: ("background.threads", "num.recovery.threads.per.data.dir"),
    "Records of the coordinators are written without compression.": ("offsets.topic.compression.codec",),
    "State is read in slices of a fixed time, so that other requests are served meanwhile.": (
        "offsets.load.buffer.size",
        "transaction.state.log.load.buffer.size",
    ),
    "A regular expression is resolved again whenever topics change.": (
        "group.consumer.regex.refresh.interval.ms",
    ),
    "The start offset is written with the recovery point.": (
        "log.flush.start.offset.checkpoint.interval.ms",
    ),
    "The first round of housekeeping comes after its own interval.": ("log.initial.task.delay.ms",),
    "Segments grow as they are written.": ("preallocate", "log.preallocate"),
}
_REASONS = tuple((name, reason) for reason, names in _BY_REASON.items() for name in names)


def reason(setting: str) -> str:
    """Why a setting does nothing; empty for one that works."""
    for name, why in _REASONS:
        if setting == name or (name.endswith(".") and setting.startswith(name)):
            return why
    return ""
