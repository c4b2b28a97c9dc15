"""Kafka's compiled tests come from Maven; what starts their cluster is replaced by classes that come first on
the class path.

java/ has what is ours. Four classes of Kafka need a line or two changed: their sources are taken from
Maven's source jars, changed by the patches below and compiled beside ours into the cache folder. Nothing of
Kafka lies in this repository. A patch that does not find its place ends the build: then the version of Kafka
in pom.xml is another than the patches know.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from apache_kafka import LOGGER_CONFIG, Unavailable, cache_folder, java_program  # noqa: E402
from connector import class_path  # noqa: E402

__all__ = ["ROOT", "Suite", "Unavailable", "build"]


@dataclass(frozen=True)
class Suite:
    """What a run needs: the java to start, the class path, the settings of the logger."""

    java: str
    class_path: str
    logger: Path


def build() -> Suite:
    """Bring the jars and compile, unless the cache has both."""
    java = java_program()
    found = [Path(jar) for jar in class_path(HERE / "pom.xml", "kafka-suite").split(os.pathsep)]
    jars = [jar for jar in found if not jar.name.endswith("sources.jar")]
    folder = cache_folder() / f"kafka-suite-{_digest()}"
    if not folder.is_dir():
        fresh = folder.with_name(f"{folder.name}.{os.getpid()}.new")
        shutil.rmtree(fresh, ignore_errors=True)
        _compile(java, jars, {jar.name: jar for jar in found}, fresh)
        try:
            fresh.replace(folder)
        except OSError:  # another run has been faster
            shutil.rmtree(fresh, ignore_errors=True)
            if not folder.is_dir():
                raise
    path = os.pathsep.join(map(str, [folder / "classes", *jars]))
    return Suite(java, path, folder / "log4j2.properties")


def _digest() -> str:
    """Of all that the build is made from, so that a change builds anew."""
    sources = [HERE / "pom.xml", HERE / "build.py", *sorted((HERE / "java").rglob("*.java"))]
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]


def _compile(java: str, jars: list[Path], by_name: dict[str, Path], folder: Path) -> None:
    classes, patched = folder / "classes", folder / "patched"
    classes.mkdir(parents=True)
    for patch in (NEW_TOPIC, UPDATE_FEATURES, CLUSTER_TYPES, QUORUM):
        target = patched / Path(patch.source).name
        target.parent.mkdir(exist_ok=True)
        target.write_text(patch.apply(by_name))
    path = os.pathsep.join(map(str, jars))
    javac = shutil.which("javac", path=str(Path(java).parent)) or shutil.which("javac")
    if javac is None:
        raise Unavailable("no javac found (a JDK is needed, not only java)")
    ours = [str(source) for source in [*(HERE / "java").rglob("*.java"), *patched.glob("*.java")]]
    _do([javac, "-nowarn", "-Xlint:none", "-proc:none", "-d", str(classes), *ours], path)
    scala = [str(source) for source in patched.glob("*.scala")]
    # the compiler is on the class path of the pom; what it compiles sees ours before Kafka's
    seen = os.pathsep.join([str(classes), path])
    _do([java, "scala.tools.nsc.Main", "-nowarn", "-cp", seen, "-d", str(classes), *scala], path)
    (folder / "log4j2.properties").write_text(LOGGER_CONFIG.format(level="WARN"))


def _do(command: list[str], path: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "CLASSPATH": path})
    if done.returncode:
        raise SystemExit(f"{Path(command[0]).name} failed:\n{(done.stdout + done.stderr)[-4000:]}")


@dataclass(frozen=True)
class Patch:
    """Changes of one source. A replacement is (old, new); a cut is (from, up to, what comes in its place)."""

    jar: str
    source: str
    replacements: tuple[tuple[str, str], ...] = ()
    cuts: tuple[tuple[str, str, str], ...] = ()

    def apply(self, jars: dict[str, Path]) -> str:
        path = next(path for name, path in jars.items() if name.startswith(self.jar) and self._in(name))
        with zipfile.ZipFile(path) as archive:
            text = archive.read(self.source).decode()
        for start, end, new in self.cuts:
            before, after = text.index(start), text.index(end, text.index(start))
            text = text[:before] + new + text[after:]
        for old, new in self.replacements:
            if old not in text:
                raise SystemExit(
                    f"{self.source} has no {old!r}: the patches are for another version of Kafka"
                )
            text = text.replace(old, new)
        return text

    def _in(self, name: str) -> bool:
        """Kafka's Scala sources that are patched are tests, its Java sources are not."""
        return name.endswith("-test-sources.jar" if self.source.endswith(".scala") else "-sources.jar")


# Topics for several brokers fit one; a number that is wrong for the test's cluster stays wrong.
NEW_TOPIC = Patch(
    "kafka-clients-",
    "org/apache/kafka/clients/admin/NewTopic.java",
    (
        (
            "setReplicationFactor(replicationFactor.orElse(CreateTopicsRequest.NO_REPLICATION_FACTOR))",
            "setReplicationFactor(millstream.OneBroker.replicationFactor("
            "replicationFactor.orElse(CreateTopicsRequest.NO_REPLICATION_FACTOR)))",
        ),
        ("setBrokerIds(entry.getValue())", "setBrokerIds(millstream.OneBroker.replicas(entry.getValue()))"),
        (
            "setValue(entry.getValue())",
            "setValue(millstream.OneBroker.setting(entry.getKey(), entry.getValue()))",
        ),
    ),
)

# Tests of unclean elections first switch eligible leader replicas off. Here they are always on, which makes
# no difference to the elections: the request leaves the feature as it is.
UPDATE_FEATURES = Patch(
    "kafka-clients-",
    "org/apache/kafka/common/requests/UpdateFeaturesRequest.java",
    (
        (
            "        public UpdateFeaturesRequest build(short version) {\n",
            "        public UpdateFeaturesRequest build(short version) {\n"
            '            var elr = data.featureUpdates().find("eligible.leader.replicas.version");\n'
            "            if (elr != null) elr.setMaxVersionLevel((short) 1).setUpgradeType((byte) 1);\n",
        ),
    ),
)

# Combined and separate controllers are the same here: each test runs once, not twice.
CLUSTER_TYPES = Patch(
    "kafka-test-common-runtime-",
    "org/apache/kafka/common/test/junit/ClusterTestExtensions.java",
    (
        (
            "clusterTest.types().length == 0 ? defaults.types() : clusterTest.types();",
            "Arrays.copyOf(clusterTest.types().length == 0 ? defaults.types() : clusterTest.types(), 1);",
        ),
        ("config.clusterTypes().stream().map(", "config.clusterTypes().stream().limit(1).map("),
    ),
)

# The older tests inherit from this: its brokers and its controller are ours.
QUORUM = Patch(
    "kafka_2.13-",
    "integration/kafka/server/QuorumTestHarness.scala",
    (
        (
            "    Utils.swallow(() => controllerServer.shutdown())\n  }",
            "    millstream.Harness.shutdown()\n  }",
        ),
        ("formatter.clusterId(),", '"millstream",'),
    ),
    (
        (
            "    val metaPropertiesEnsemble = {\n",
            "  override def shutdown(): Unit = {",
            "    millstream.Harness.createBroker(config, startup)\n  }\n\n",
        ),
        (
            "    val propsList = kraftControllerConfigs(testInfo)",
            "    new KRaftQuorumImplementation(\n",
            "    kraftControllerConfigs(testInfo)\n"
            "    val formatter = new Formatter()\n"
            "    addFormatterSettings(formatter)\n"
            "    millstream.Harness.format(formatter)\n"
            "    val metadataDir = TestUtils.tempDir()\n"
            "    val controllerServer = millstream.Harness.controller()\n"
            "    val controllerQuorumVotersFuture ="
            " new CompletableFuture[util.Map[Integer, InetSocketAddress]]\n",
        ),
    ),
)
