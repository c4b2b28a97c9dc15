"""Names that a file written for Kafka may have and that mean nothing here, with the reason.

They are not part of the table: the broker starts with them, says so once, and shows them like any unknown name.
"""

_TIERED = "tiered storage is not offered"
_KRAFT = "there is no KRaft quorum; metadata lies in this broker's own store"
_ZOOKEEPER = "metadata lies in this broker's own store, not in ZooKeeper"
_SHARE = "share groups are not offered"
_STREAMS = "the streams group protocol is not offered"
_GONE = "Apache Kafka 4 removed it"

_PREFIXES = {
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

_NAMES = {
    "server.max.startup.time.ms": "there is no limit on starting",
    "unclean.leader.election.interval.ms": "unclean elections follow at once where they are allowed",
    "advertised.host.name": f"{_GONE}; use advertised.listeners",
    "advertised.port": f"{_GONE}; use advertised.listeners",
    "host.name": f"{_GONE}; use listeners",
    "port": f"{_GONE}; use listeners",
    "broker.id.generation.enable": f"{_GONE}; set node.id",
    "reserved.broker.max.id": f"{_GONE}; set node.id",
    "controlled.shutdown.max.retries": _GONE,
    "controlled.shutdown.retry.backoff.ms": _GONE,
    "control.plane.listener.name": _GONE,
    "delegation.token.master.key": f"{_GONE}; use delegation.token.secret.key",
    "group.coordinator.new.enable": _GONE,
    "inter.broker.protocol.version": _GONE,
    "leader.imbalance.per.broker.percentage": _GONE,
    "log.message.downconversion.enable": _GONE,
    "log.message.format.version": _GONE,
    "log.message.timestamp.difference.max.ms": f"{_GONE}; use log.message.timestamp.before.max.ms",
    "offsets.commit.required.acks": _GONE,
    "password.encoder.secret": _GONE,
    "auto.include.jmx.reporter": _GONE,
}


def reason(name: str) -> str | None:
    """Why a name that Kafka knows, or once knew, does nothing here; None for a name that Kafka does not know."""
    found = _NAMES.get(name)
    if found is None:
        found = next((why for prefix, why in _PREFIXES.items() if name.startswith(prefix)), None)
    return found
