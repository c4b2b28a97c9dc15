"""Settings that do nothing here, each with the reason.

Some have a row in the table (`not_yet`): they are read, checked and described, so that a server.properties
made for Kafka is read without a complaint about every line, and lose their reason when their feature is
built. Others are no part of the table (`kafka_only`) and are shown like any unknown name. The broker starts
with either and says so once.
"""

_NO_TICKETS = "The broker takes Kerberos logins; it does not log in by Kerberos itself."
_NO_TOKENS_OF_ITS_OWN = "The broker does not fetch tokens for itself."
_NOT_BETWEEN_BROKERS = "Connections between brokers do without it."
_NO_QUOTAS = "There are no quotas of replication yet."
_AT_ONCE = "Written at once, in the loop; there is nothing to wait for."
_ONE_THREAD = "The broker has one loop and a few helper threads; there is no pool to size."

_NOT_YET_BY_REASON: dict[str, tuple[str, ...]] = {
    _NO_TICKETS: (
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.service.name",
        "sasl.kerberos.ticket.",
    ),
    _NO_TOKENS_OF_ITS_OWN: ("sasl.login.",),
    "Keys that could not be read are read again for the next token.": (
        "sasl.oauthbearer.jwks.endpoint.retry.",
    ),
    _NOT_BETWEEN_BROKERS: (
        "controller.socket.timeout.ms",
        "initial.broker.registration.timeout.ms",
        "replica.socket.receive.buffer.bytes",
        "socket.connection.setup.timeout.",
    ),
    "One fetch is under way to each leader.": ("num.replica.fetchers",),
    "High watermarks are written every five seconds.": ("replica.high.watermark.checkpoint.interval.ms",),
    _NO_QUOTAS: (
        "alter.log.dirs.replication.quota.",
        "replication.quota.window.",
    ),
    _AT_ONCE: ("group.coordinator.append.linger.ms",),
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
_NOT_YET = tuple((name, reason) for reason, names in _NOT_YET_BY_REASON.items() for name in names)


def not_yet(setting: str) -> str:
    """Why a setting does nothing; empty for one that works."""
    for name, why in _NOT_YET:
        if setting == name or (name.endswith(".") and setting.startswith(name)):
            return why
    return ""


_TIERED = "tiered storage is not offered"
_KRAFT = "there is no KRaft quorum; metadata lies in this broker's own store"
_ZOOKEEPER = "not offered: ZooKeeper is reached by zookeeper.connect, without SASL"
_SHARE = "share groups are not offered"
_STREAMS = "the streams group protocol is not offered"
_GONE = "Apache Kafka 4 removed it"

_KAFKA_ONLY_PREFIXES = {
    "remote.": _TIERED,
    "rlmm.config.": _TIERED,
    "rsm.config.": _TIERED,
    "log.local.retention.": _TIERED,
    "controller.quorum.": _KRAFT,
    "metadata.": _KRAFT,
    "internal.metadata.": _KRAFT,
    "controller.performance.": _KRAFT,
    "group.share.": _SHARE,
    "share.": _SHARE,
    "group.streams.": _STREAMS,
    "zookeeper.": _ZOOKEEPER,
    "sasl.oauthbearer.assertion.": "the broker does not fetch tokens for itself",
    "unstable.": "unfinished parts of Kafka are not offered",
}

_KAFKA_ONLY = {
    "server.max.startup.time.ms": "there is no limit on starting",
    "unclean.leader.election.interval.ms": "unclean elections follow at once where they are allowed",
    "advertised.host.name": f"{_GONE}; use advertised.listeners",
    "advertised.port": f"{_GONE}; use advertised.listeners",
    "host.name": f"{_GONE}; use listeners",
    "port": f"{_GONE}; use listeners",
    "controlled.shutdown.max.retries": _GONE,
    "controlled.shutdown.retry.backoff.ms": _GONE,
    "control.plane.listener.name": _GONE,
    "delegation.token.master.key": f"{_GONE}; use delegation.token.secret.key",
    "group.coordinator.new.enable": _GONE,
    "inter.broker.protocol.version": _GONE,
    "leader.imbalance.per.broker.percentage": f"{_GONE}; every leadership that can go back does",
    "log.message.downconversion.enable": _GONE,
    "log.message.format.version": _GONE,
    "log.message.timestamp.difference.max.ms": f"{_GONE}; use log.message.timestamp.before.max.ms",
    "offsets.commit.required.acks": _GONE,
    "password.encoder.secret": _GONE,
    "auto.include.jmx.reporter": _GONE,
}


def kafka_only(name: str) -> str | None:
    """Why a name that Kafka knows, or once knew, does nothing here; None for a name that Kafka does not
    know."""
    found = _KAFKA_ONLY.get(name)
    if found is None:
        found = next((why for prefix, why in _KAFKA_ONLY_PREFIXES.items() if name.startswith(prefix)), None)
    return found
