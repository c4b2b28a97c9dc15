"""What `/metrics` shows of the registry itself: what it holds, who leads, how far it has read."""

from millstream.http.metrics import Page
from millstream.registry.service import RegistryService


def add_own(service: RegistryService, page: Page) -> None:
    state = service.state
    versions: dict[tuple[str, str], int] = {}
    subjects = 0
    for found in state.versions.values():
        for one in found.values():
            key = (one.content.schema_type, "true" if one.deleted else "false")
            versions[key] = versions.get(key, 0) + 1
        subjects += any(not one.deleted for one in found.values())
    page.one("millstream_registry_subjects", "gauge", "Subjects that are not deleted.", subjects)
    page.one("millstream_registry_schemas", "gauge", "Schemas, each with an id.", state.schema_count)
    page.add(
        "millstream_registry_versions",
        "gauge",
        "Versions of subjects by type; deleted ones are those that are deleted softly.",
        [({"type": kind, "deleted": deleted}, count) for (kind, deleted), count in sorted(versions.items())],
    )
    page.one("millstream_registry_leads", "gauge", "1 if this instance leads.", int(service.leads))
    page.one(
        "millstream_registry_has_leader", "gauge", "1 if a leader is known.", int(service.leader is not None)
    )
    page.one(
        "millstream_registry_leader_changes_total", "counter", "Changes of the leader.", service.elections
    )
    page.one(
        "millstream_registry_position", "gauge", "The next offset of the topic to read.", service.position
    )
    page.one(
        "millstream_registry_records_left_out",
        "gauge",
        "Records of the topic that were not understood.",
        state.left_out,
    )
