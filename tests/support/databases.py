"""PostgreSQL and MariaDB servers of one's own: in a temporary folder, on a free port of 127.0.0.1, as a user
without privileges, gone when the tests end."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.support.ports import free_port
from tests.support.waiting import wait_until

USER = "tester"
PASSWORD = "sesame-street"  # noqa: S105 - of servers that live as long as a test


def _account() -> str | None:
    """Whom the servers run as: nobody, where we are root; they refuse that."""
    return "nobody" if os.getuid() == 0 else None


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="millstream-db-"))
    try:
        if account := _account():
            entry = pwd.getpwnam(account)
            os.chown(folder, entry.pw_uid, entry.pw_gid)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Server:
    """`stop` and `start` as often as one likes: its data stays."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        self.process: subprocess.Popen[bytes] | None = None

    command: list[str]
    stop_signal = signal.SIGINT

    def start(self) -> None:
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdout=log,
                stderr=log,
                user=_account(),
                cwd=self.folder,
                env={"LC_ALL": "C.UTF-8"},
            )
        wait_until(self.answers, lambda: (self.folder / "server.log").read_text())

    def answers(self) -> bool:
        raise NotImplementedError

    def stop(self, how: signal.Signals | None = None) -> None:
        if self.process is not None:
            self.process.send_signal(how or self.stop_signal)
            self.process.wait(60)
            self.process = None


class PostgresServer(Server):
    def __init__(self, folder: Path, port: int) -> None:
        super().__init__(folder, port)
        programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"))[-1]
        data = folder / "data"
        secret = folder / "password"
        secret.write_text(PASSWORD)
        os.chmod(secret, 0o644)
        subprocess.run(
            [programs / "initdb", "-D", data, "-U", USER, "-A", "scram-sha-256", f"--pwfile={secret}",
             "--no-sync", "-E", "UTF8", "--locale=C.UTF-8"],
            check=True, capture_output=True, user=_account(), cwd=folder,
        )  # fmt: skip
        self.command = [
            str(programs / "postgres"), "-D", str(data), "-h", "127.0.0.1", "-p", str(port),
            "-k", str(folder), "-c", "wal_level=logical", "-c", "fsync=off", "-c", "max_wal_senders=10",
            "-c", "shared_buffers=16MB",
        ]  # fmt: skip

    @property
    def url(self) -> str:
        return f"jdbc:postgresql://127.0.0.1:{self.port}/postgres"

    @property
    def conninfo(self) -> str:
        return f"host=127.0.0.1 port={self.port} user={USER} password={PASSWORD} dbname=postgres"

    def answers(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.conninfo).close()
        except psycopg.OperationalError:
            return False
        return True


class MariaDbServer(Server):
    stop_signal = signal.SIGTERM

    def __init__(self, folder: Path, port: int) -> None:
        super().__init__(folder, port)
        data = folder / "data"
        # Not /tmp: a server that starts removes whatever looks like a temporary table there, of others too.
        subprocess.run(
            ["mariadb-install-db", "--no-defaults", f"--datadir={data}",
             "--auth-root-authentication-method=normal", "--skip-test-db"],
            check=True, capture_output=True, user=_account(), cwd=folder,
            env={**os.environ, "TMPDIR": str(folder)},
        )  # fmt: skip
        start = folder / "start.sql"
        start.write_text(
            f"CREATE USER IF NOT EXISTS '{USER}'@'%' IDENTIFIED BY '{PASSWORD}';\n"
            f"GRANT ALL ON *.* TO '{USER}'@'%';\nCREATE DATABASE IF NOT EXISTS shop;\n"
        )
        os.chmod(start, 0o644)
        server = shutil.which("mariadbd", path=f"{os.environ.get('PATH', '')}:/usr/sbin") or "mariadbd"
        self.command = [
            server, "--no-defaults", f"--datadir={data}", f"--tmpdir={folder}", f"--port={port}",
            "--bind-address=127.0.0.1",
            f"--socket={folder}/mysql.sock", f"--init-file={start}", "--innodb-flush-log-at-trx-commit=0",
            "--skip-name-resolve", f"--pid-file={folder}/pid", "--innodb-buffer-pool-size=16M",
        ]  # fmt: skip

    @property
    def url(self) -> str:
        return f"jdbc:mariadb://127.0.0.1:{self.port}/shop"

    def answers(self) -> bool:
        import pymysql

        try:
            pymysql.connect(
                host="127.0.0.1", port=self.port, user=USER, password=PASSWORD, database="shop"
            ).close()
        except pymysql.MySQLError:
            return False
        return True


@contextlib.contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    with _folder() as folder:
        server = PostgresServer(folder, free_port())
        server.start()
        try:
            yield server
        finally:
            server.stop(signal.SIGQUIT)


@contextlib.contextmanager
def mariadb_server() -> Iterator[MariaDbServer]:
    with _folder() as folder:
        server = MariaDbServer(folder, free_port())
        server.start()
        try:
            yield server
        finally:
            server.stop(signal.SIGKILL)
