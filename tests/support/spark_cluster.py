"""A standalone Spark cluster on this machine: a master and workers, each with a folder and a machine name of
its own, from the classes that PySpark brings."""

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import psutil
from pyspark.find_spark_home import _find_spark_home

from tests.support.ports import free_port
from tests.support.waiting import wait_until


class SparkCluster:
    def __init__(self, folder: Path, workers: int = 2, cores: int = 4) -> None:
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        port = free_port()
        self.master = f"spark://127.0.0.1:{port}"
        self._start("master", "master.Master", ["--port", str(port)])
        self._wait_for("master", "I have been elected leader")
        for number in range(1, workers + 1):
            self.add_worker(f"worker-{number}", cores)
        for number in range(1, workers + 1):
            self._wait_for(f"worker-{number}", "Successfully registered with master")

    def add_worker(self, name: str, cores: int) -> None:
        words = ["--cores", str(cores), "--memory", "2g", "--work-dir", str(self._folder / name), self.master]
        self._start(name, "worker.Worker", words)

    def pid(self, name: str) -> int:
        return self._processes[name].pid

    def kill_machine(self, name: str) -> None:
        """The worker, its executors and their Python processes, all at once."""
        process = psutil.Process(self._processes[name].pid)
        for one in [process, *process.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.send_signal(signal.SIGKILL)
        self._processes.pop(name).wait()

    def close(self) -> None:
        for name in list(self._processes):
            self.kill_machine(name)

    def _start(self, name: str, java_class: str, words: list[str]) -> None:
        home = _find_spark_home()
        environment = {
            **os.environ,
            "SPARK_HOME": home,
            "SPARK_LOCAL_DIRS": str(self._folder / f"{name}-local"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
            "MILLSTREAM_MACHINE": name,
        }
        environment.pop("PYSPARK_PYTHON", None)
        command = [f"{home}/bin/spark-class", f"org.apache.spark.deploy.{java_class}"]
        with open(self._folder / f"{name}.log", "wb") as log:
            self._processes[name] = subprocess.Popen(
                [*command, "--host", "127.0.0.1", "--webui-port", "0", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
            )

    def _wait_for(self, name: str, text: str) -> None:
        log = self._folder / f"{name}.log"
        wait_until(lambda: text in log.read_text(), lambda: log.read_text()[-2000:], patience=120)
