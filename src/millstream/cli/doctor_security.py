"""What `millstream doctor` looks at where `up --secure` has been: certificates, files with secrets, and
services that are asked for passwords without TLS."""

import ssl
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.cli.doctor_finding import GOOD, PROBLEM, WARNING, Finding

if TYPE_CHECKING:
    from millstream.up.data_folders import DataFolder

EXPIRES_SOON = 14 * 86_400.0
BEGIN, END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


def security(home: "DataFolder") -> Iterator[Finding]:
    """Nothing for a platform that is not secured."""
    from millstream.cli.secure_platform import FOLDER

    folder = home.path / FOLDER
    if not folder.is_dir():
        return
    for name in ("ca.pem", "broker.pem", "client.pem"):
        yield certificate(folder / name)
    yield secrets(folder)
    yield from encryption(home)


def certificate(path: Path) -> Finding:
    from millstream.wire.certificate import read_certificate

    what = f"Certificate {path.name}"
    cure = (
        f"replace {path} by one that your authority signs, of the same names; without an authority of your "
        "own: `millstream secure init` makes certificates in another folder, of which ca.pem, ca.key, "
        "broker.pem and client.pem belong together"
    )
    try:
        text = path.read_text(encoding="ascii")
        block = BEGIN + text.split(BEGIN, 1)[1].split(END, 1)[0] + END
        found = read_certificate(ssl.PEM_cert_to_DER_cert(block))
    except (OSError, ValueError, IndexError) as error:
        reason = getattr(error, "strerror", None) or "no certificate is in it"
        return Finding(what, PROBLEM, f"{path}: {reason.lower()}", cure)
    left = found.not_after - time.time()
    names = ", ".join(sorted(name.partition(":")[2] for name in found.alt_names))
    shown = f"good until {time.strftime('%Y-%m-%d', time.gmtime(found.not_after))}"
    shown += f", for {names}" if names else ""
    if left <= 0:
        return Finding(what, PROBLEM, shown.replace("good until", "expired on", 1), cure)
    return Finding(what, WARNING, shown, cure) if left < EXPIRES_SOON else Finding(what, GOOD, shown)


def secrets(folder: Path) -> Finding:
    """Passwords and keys are for the user who runs the platform."""
    others = stat.S_IRWXG | stat.S_IRWXO
    open_to_others = [path.name for path in sorted(folder.iterdir()) if path.stat().st_mode & others]
    if open_to_others and folder.stat().st_mode & others:
        return Finding(
            "Passwords and keys",
            PROBLEM,
            f"others can read {', '.join(open_to_others)} in {folder}",
            f"chmod -R go= {folder}, and change the passwords that somebody may have read",
        )
    return Finding("Passwords and keys", GOOD, f"only this user can read {folder}")


def encryption(home: "DataFolder") -> Iterator[Finding]:
    """Whether passwords of callers travel in clear text to what runs just now."""
    from millstream.up.data_folders import NotRunning

    try:
        services = home.instance().services
    except NotRunning:
        return
    if not any(one.name == "broker" and "SASL_SSL" in one.what for one in services):
        return
    plain = [one for one in services if one.address.startswith("http://")]
    if not plain:
        yield Finding("Encryption", GOOD, "broker by SASL_SSL, HTTP services by https")
        return
    names = ", ".join(f"{one.name} {one.address}" for one in plain)
    yield Finding(
        "Encryption",
        WARNING,
        f"passwords reach {names} unencrypted",
        "start without --plain-http, or let only a proxy with TLS reach these ports",
    )
