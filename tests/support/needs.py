"""What tests need beyond Python, and what to install when it is missing.

A test gets a marker of this table by itself as soon as it uses the fixture beside it; a test that starts the
program in another way carries the marker in its file. Where none of the programs is found, the tests with the
marker are skipped, and the last line of the run names the package.

`LONG` names the folders and files whose tests start several services, kill them, wait for retries to give up,
or run for many seconds: `make test` runs them, `make check` does not.
"""

from __future__ import annotations

import functools
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

INSTALL = re.compile(r"(apt-get|pip) install ([^\s);]+)")


@dataclass(frozen=True)
class Need:
    marker: str
    programs: tuple[str, ...]
    package: str
    fixtures: frozenset[str] = frozenset()

    def missing(self) -> bool:
        return not any(map(shutil.which, self.programs))

    @property
    def reason(self) -> str:
        return f"{self.programs[0]} is not installed (apt-get install {self.package})"


JAVA = "openjdk-17-jre-headless"
NEEDS = (
    Need("spark", ("java",), JAVA, frozenset({"spark"})),
    Need("java", ("java",), JAVA, frozenset({"kafka_classes", "zookeeper", "ensemble"})),
    Need("browser", ("chromium", "chromium-browser", "google-chrome"), "chromium", frozenset({"chromium"})),
    Need("kcat", ("kcat", "kafkacat"), "kcat", frozenset({"kcat"})),
    Need("postgres", ("pg_createcluster",), "postgresql", frozenset({"postgres"})),
    Need("mariadb", ("mariadb-install-db",), "mariadb-server", frozenset({"mariadb"})),
    Need("mosquitto", ("mosquitto",), "mosquitto", frozenset({"mosquitto"})),
)

ROOT = Path(__file__).resolve().parents[2]
LONG = (
    "tests/broker/apis/test_cluster_answers.py",
    "tests/broker/apis/test_fast_path_equivalence.py",
    "tests/broker/apis/test_slices.py",
    "tests/broker/cluster",
    "tests/broker/coordinators/groups/test_clients_confluent.py",
    "tests/broker/coordinators/groups/test_clients_consumer_protocol.py",
    "tests/broker/coordinators/groups/test_group_answers.py",
    "tests/broker/coordinators/groups/test_group_restart.py",
    "tests/broker/coordinators/test_moving_coordinators.py",
    "tests/broker/coordinators/transactions/test_transaction_clients.py",
    "tests/broker/coordinators/transactions/test_transaction_coordinator.py",
    "tests/broker/coordinators/transactions/test_transaction_recovery.py",
    "tests/broker/login/test_clients.py",
    "tests/broker/login/test_logins.py",
    "tests/broker/network/test_large_requests.py",
    "tests/broker/network/test_tls_connection.py",
    "tests/broker/replication/test_failing_replicas.py",
    "tests/broker/replication/test_failover.py",
    "tests/broker/replication/test_reassignment.py",
    "tests/broker/replication/test_three_brokers.py",
    "tests/broker/test_audit.py",
    "tests/broker/test_authorizer.py",
    "tests/broker/test_authorizer_recorded.py",
    "tests/broker/test_bad_input_clients.py",
    "tests/broker/test_forwarding.py",
    "tests/broker/test_log_cleaner.py",
    "tests/broker/test_log_dir_moves.py",
    "tests/broker/test_quotas.py",
    "tests/broker/test_securing_step_by_step.py",
    "tests/broker/test_security_clients.py",
    "tests/broker/test_server.py",
    "tests/broker/tls/test_tls_listeners.py",
    "tests/broker/tls/test_tls_offers.py",
    "tests/cli/test_cli_recorded.py",
    "tests/cli/test_groups_recorded.py",
    "tests/cli/test_perf.py",
    "tests/cli/test_schema_formats.py",
    "tests/cli/test_secure.py",
    "tests/cli/test_up.py",
    "tests/cli/test_up_brokers.py",
    "tests/cluster/test_invariants.py",
    "tests/connect/jdbc/test_postgres_cdc.py",
    "tests/connect/jdbc/test_walks.py",
    "tests/connect/test_isolation.py",
    "tests/connect/test_openapi.py",
    "tests/connect/test_worker.py",
    "tests/connect/test_workers.py",
    "tests/console/test_bad_input.py",
    "tests/console/test_clients_page.py",
    "tests/console/test_security.py",
    "tests/faults",
    "tests/host/test_lanes.py",
    "tests/host/test_processes.py",
    "tests/http/callers/test_certificate_callers.py",
    "tests/http/callers/test_registry_callers.py",
    "tests/http/callers/test_rest_callers.py",
    "tests/http/callers/test_secrets.py",
    "tests/interop",
    "tests/registry/test_associations.py",
    "tests/registry/test_browsers.py",
    "tests/registry/test_deks.py",
    "tests/registry/test_instances.py",
    "tests/registry/test_metrics.py",
    "tests/registry/test_openapi.py",
    "tests/releases",
    "tests/rest/test_bad_input.py",
    "tests/rest/test_browsers.py",
    "tests/rest/test_consumers.py",
    "tests/rest/test_openapi.py",
    "tests/rest/test_tls_cluster.py",
    "tests/spark/source/test_stream.py",
    "tests/spark/test_package.py",
    "tests/sql/server/test_bad_days.py",
    "tests/sql/server/test_connectors.py",
    "tests/sql/server/test_jupyter.py",
    "tests/sql/server/test_servers.py",
    "tests/sql/server/test_shell.py",
    "tests/sql/server/test_table_queries.py",
    "tests/sql/server/test_user_functions.py",
    "tests/storage/cleaning/test_model.py",
    "tests/storage/test_append_fast_path.py",
    "tests/storage/test_crashes.py",
    "tests/storage/test_model.py",
    "tests/streams/runtime/test_application.py",
    "tests/streams/runtime/test_bad_days.py",
    "tests/streams/runtime/test_formats.py",
    "tests/streams/runtime/test_kills.py",
    "tests/streams/runtime/test_moves.py",
    "tests/streams/runtime/test_progress.py",
    "tests/streams/runtime/test_queries.py",
    "tests/streams/runtime/test_standby.py",
    "tests/streams/runtime/test_tasks.py",
    "tests/streams/runtime/test_time.py",
    "tests/testing/test_pytest_plugin.py",
    "tests/testing/test_real_broker.py",
)


@functools.cache
def is_long(path: Path) -> bool:
    """Whether the file, or a folder that it is in, is in `LONG`."""
    inside = path.relative_to(ROOT)
    return any(one.as_posix() in LONG for one in (inside, *inside.parents))


def mark(items: Iterable[pytest.Item]) -> None:
    """Set the markers by fixture, and skip what cannot run on this machine."""
    missing = {need.marker for need in NEEDS if need.missing()}
    assert all((ROOT / name).exists() for name in LONG), "LONG names a file that was moved"
    for item in items:
        if is_long(item.path):
            item.add_marker("long")
        fixtures = set(getattr(item, "fixturenames", ()))
        for need in NEEDS:
            if need.fixtures & fixtures:
                item.add_marker(need.marker)
            if need.marker in missing and item.get_closest_marker(need.marker):
                item.add_marker(pytest.mark.skip(reason=need.reason))


def installs(reasons: Iterable[str]) -> str:
    """The commands that bring what the reasons of skipped tests name: "apt-get install chromium kcat"."""
    wanted: dict[str, set[str]] = {}
    for reason in reasons:
        for tool, package in INSTALL.findall(reason):
            wanted.setdefault(tool, set()).add(package)
    return "; ".join(f"{tool} install {' '.join(sorted(names))}" for tool, names in sorted(wanted.items()))
