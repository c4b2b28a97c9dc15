"""What `/metrics` shows of the registry itself: what it holds, who leads, how far it has read."""

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import Metric

from millstream.http.metrics import counter, gauge, gauges
from millstream.registry.service import RegistryService


def collect(service: RegistryService) -> Iterator[Metric]:
    state = service.state
    versions: Counter[tuple[str, str]] = Counter()
    subjects = 0
    for subject_versions in state.versions.values():
        for version in subject_versions.values():
            versions[version.content.schema_type, "true" if version.deleted else "false"] += 1
        subjects += any(not version.deleted for version in subject_versions.values())
    yield gauge("millstream_registry_subjects", "Subjects that are not deleted.", subjects)
    yield gauge("millstream_registry_schemas", "Schemas, each with an id.", state.schema_count)
    yield gauges(
        "millstream_registry_versions",
        "Versions of subjects by type; deleted ones are those that are deleted softly.",
        ("type", "deleted"),
        sorted(versions.items()),
    )
    yield gauge("millstream_registry_leads", "1 if this instance leads.", int(service.leads))
    yield gauge("millstream_registry_has_leader", "1 if a leader is known.", int(service.leader is not None))
    yield counter("millstream_registry_leader_changes_total", "Changes of the leader.", service.elections)
    yield gauge("millstream_registry_position", "The next offset of the topic to read.", service.log.position)
    yield gauge(
        "millstream_registry_records_left_out",
        "Records of the topic that were not understood.",
        state.left_out,
    )
