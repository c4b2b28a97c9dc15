"""A Kerberos realm for tests: Debian's KDC on a free port, with its files in a folder of its own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.ports import free_port

from .waiting import wait_until

REALM = "MILL.TEST"
PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")


def missing() -> list[str]:
    """The programs that are not installed (krb5-kdc, krb5-admin-server, krb5-user)."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin"
    return [name for name in PROGRAMS if shutil.which(name, path=path) is None]


class RunningKdc:
    """`env` is what clients and services need to find it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = port = free_port()
        krb5, kdc = folder / "krb5.conf", folder / "kdc.conf"
        krb5.write_text(
            f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n rdns = false\n"
            " dns_canonicalize_hostname = false\n udp_preference_limit = 1\n"
            f"[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{port}\n }}\n"
        )
        kdc.write_text(
            f"[kdcdefaults]\n kdc_listen = 127.0.0.1:{port}\n kdc_tcp_listen = 127.0.0.1:{port}\n"
            f"[realms]\n {REALM} = {{\n  database_name = {folder}/principal\n"
            f"  key_stash_file = {folder}/stash\n }}\n"
        )
        self.env = {
            "KRB5_CONFIG": str(krb5),
            "KRB5_KDC_PROFILE": str(kdc),
            "KRB5CCNAME": f"FILE:{folder}/tickets",
            "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin",
        }
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, *command: str, text: str = "") -> None:
        done = subprocess.run(
            command, env={**os.environ, **self.env}, input=text, text=True, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr

    def keytab(self, principal: str) -> Path:
        """A new principal with a random key."""
        path = self._folder / f"{principal.replace('/', '-')}.keytab"
        self.run("kadmin.local", "-q", f"addprinc -randkey {principal}")
        self.run("kadmin.local", "-q", f"ktadd -k {path} {principal}")
        return path

    def log_in(self, principal: str) -> None:
        """A ticket for a new principal, in the cache that `env` names."""
        self.run("kinit", "-k", "-t", str(self.keytab(principal)), principal)

    def __enter__(self) -> Self:
        self.run("kdb5_util", "create", "-s", "-P", "a-test-only", "-r", REALM)
        self._process = subprocess.Popen(
            ["krb5kdc", "-n"],
            env={**os.environ, **self.env},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

        def serves() -> bool:
            try:
                socket.create_connection(("127.0.0.1", self._port), 1).close()
            except OSError:
                return False
            return True

        wait_until(serves)
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(60)
