"""Runs the blocks of one page, as printed but for hosts and ports.

They run in a scratch folder that is also their home directory.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Any

import yaml

from millstream.filters import compile_filter
from tests.docs.blocks import ROOT, Block
from tests.support.ports import free_port, free_ports

COMMAND_TIMEOUT = 300.0
READY_TIMEOUT = 120.0
# In the order in which `up --port-base` hands them out; the last is for queries of Streams.
PORTS = (9092, 8081, 8082, 8080, 9404, 7070)
USED_PORTS = 12  # with those of several brokers
ADDRESS = re.compile(r"\b(?:127\.0\.0\.1|localhost):(\d+)\b")
UP = re.compile(r"^millstream up\b", re.MULTILINE)
OWN_PORT = {"registry": 8081, "rest": 8082, "console": 8080}
SERVICE = re.compile(r"^millstream (registry|rest|console) (?=--set)", re.MULTILINE)


class PageRun:
    def __init__(self, folder: Path, port_base: int = 0) -> None:
        self.folder = folder
        self.port_base = port_base = port_base or free_ports(USED_PORTS)
        self.ports = {port: port_base + index for index, port in enumerate(PORTS)}
        # ZooKeeper, and the second and third of several brokers.
        self.ports |= {2181: port_base + 7, 9093: port_base + 10, 9094: port_base + 11}
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.services: list[Service] = []
        self.environment = {
            **os.environ,
            "HOME": str(folder),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "MILLSTREAM_SPARK_MASTER": "local[2]",
        }
        for name in ("MILLSTREAM_DATA_DIR", "MILLSTREAM_HOME", "MILLSTREAM_PROFILE", "XDG_STATE_HOME"):
            self.environment.pop(name, None)
        if not (folder / "examples").exists():
            (folder / "examples").symlink_to(ROOT / "examples")

    def run(self, block: Block) -> None:
        text = self.with_ports(block.text)
        if name := block.file_name:
            (self.folder / name).write_text(text)
        elif block.service:
            self.services.append(Service(block, SERVICE.sub(self._with_listener, text), self))
        elif block.language == "bash":
            self._check(block, self._bash(block, UP.sub(f"millstream up --port-base {self.port_base}", text)))
        elif block.language == "python":
            self._check(block, self._python(block, text))
        elif block.language == "filter":
            for line in text.splitlines():
                compile_filter(line)
        elif block.language == "yaml":
            yaml.safe_load(text)
        elif block.language == "json":
            for line in text.splitlines():
                json.loads(line)
        else:
            raise AssertionError(f"{block.where}: nobody knows how to run {block.language or 'a bare block'}")

    def with_ports(self, text: str) -> str:
        def moved(match: re.Match[str]) -> str:
            port = int(match[1])
            return f"127.0.0.1:{self.ports[port]}" if port in self.ports else match[0]

        return ADDRESS.sub(moved, text)

    def close(self) -> None:
        for service in self.services:
            service.stop()

    def _with_listener(self, match: re.Match[str]) -> str:
        """A service has its own port on the page: from here on it is this one's, not that of `up`."""
        port = self.ports[OWN_PORT[match[1]]] = free_port()
        return f"{match[0]}--set listeners=http://127.0.0.1:{port} "

    def _bash(self, block: Block, text: str) -> str:
        # Files, not pipes: what `up -d` leaves running inherits them.
        with open(self.folder / "stdout", "w+") as out, open(self.folder / "stderr", "w+") as errors:
            done = subprocess.run(
                ["bash", "-e", "-o", "pipefail", "-c", text],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
                timeout=COMMAND_TIMEOUT,
            )
            printed, complaint = _content(out), _content(errors)
        assert done.returncode == 0, f"{block.where} ended with {done.returncode}\n{printed}\n{complaint}"
        return printed

    def _python(self, block: Block, text: str) -> str:
        code = compile("\n" * (block.line - 1) + text, str(block.page), "exec")
        printed = io.StringIO()
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(printed):
            exec(code, self.names)  # noqa: S102
        return printed.getvalue()

    def _check(self, block: Block, printed: str) -> None:
        if block.output is None:
            return
        expected = self.with_ports(block.output)
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        assert doctest.OutputChecker().check_output(expected, printed, flags), (
            f"{block.where} printed\n{printed}\nand the page says\n{expected}"
        )


class Service:
    """A block that serves until it is stopped: ready when it says so, ends cleanly on SIGTERM."""

    def __init__(self, block: Block, text: str, page: PageRun) -> None:
        self.where = block.where
        self.process = subprocess.Popen(
            ["bash", "-e", "-c", f"exec {text}"],
            cwd=page.folder,
            env=page.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.printed: list[str] = []
        self.ready = threading.Event()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        if not self.ready.wait(READY_TIMEOUT) or self.process.poll() is not None:
            self.process.kill()
            raise AssertionError(f"{self.where} did not get ready\n{''.join(self.printed)}")

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.printed.append(line)
            if "ready" in line:
                self.ready.set()
        self.ready.set()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(READY_TIMEOUT)
        finally:
            self.process.kill()
        self.reader.join(READY_TIMEOUT)
        assert code == 0, f"{self.where} ended with {code}\n{''.join(self.printed)}"


def _content(file: IO[str]) -> str:
    file.seek(0)
    return file.read()
