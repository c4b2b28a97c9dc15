"""Users with passwords: `millstream configs --entity-type users` with SCRAM credentials, and KIP-900's text
for the first of them.

    --add-config 'SCRAM-SHA-512=[iterations=8192,password=secret]'
    --add-scram  'SCRAM-SHA-512=[name=admin,password=secret]'

No message repeats the text: there is a password in it.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from millstream.cli.errors import CommandFailed, UsageError
from millstream.cli.output import Report
from millstream.client.scram import MAX_ITERATIONS, MECHANISMS, MIN_ITERATIONS, SaltedPassword, salt_password

if TYPE_CHECKING:
    from millstream.client import Cluster


class NamedPassword(NamedTuple):
    user: str
    mechanism: str
    password: SaltedPassword


def are_credentials(names: Sequence[str]) -> bool:
    """Whether these settings of a user are SCRAM credentials; all of them or none."""
    found = [name.upper() in MECHANISMS for name in names]
    if any(found) and not all(found):
        raise UsageError("change SCRAM credentials and quotas of a user by two commands")
    return bool(found) and all(found)


def parse_password(mechanism: str, text: str) -> SaltedPassword:
    """`iterations=8192,password=secret`."""
    options = _options(mechanism, text, ("iterations", "password"))
    if not options.get("password"):
        raise UsageError(f"{mechanism}: give a password, as {mechanism}=[password=SECRET]")
    return salt_password(mechanism.upper(), options["password"], _iterations(mechanism, options))


def parse_add_scram(text: str) -> NamedPassword:
    """KIP-900: `SCRAM-SHA-512=[name=admin,password=secret]`, with iterations, salt (base64) and, instead of
    the password, saltedpassword (base64)."""
    mechanism, equals, rest = (part.strip() for part in text.partition("="))
    if mechanism.upper() not in MECHANISMS or not equals or not (rest.startswith("[") and rest.endswith("]")):
        raise UsageError("--add-scram: write it as SCRAM-SHA-512=[name=NAME,password=SECRET]")
    mechanism = mechanism.upper()
    options = _options(mechanism, rest[1:-1], ("name", "iterations", "salt", "password", "saltedpassword"))
    if not options.get("name"):
        raise UsageError("--add-scram: You must supply 'name'")
    salt = _base64("salt", options.get("salt", "").strip('"'))
    salted = _base64("saltedpassword", options.get("saltedpassword", "").strip('"'))
    iterations = _iterations(mechanism, options)
    if bool(salted) == bool(options.get("password")):
        raise UsageError("--add-scram: You must supply one of 'password' or 'saltedpassword'")
    if salted:
        if not salt:
            raise UsageError("--add-scram: You must supply 'salt' with 'saltedpassword'")
        made = SaltedPassword(MECHANISMS[mechanism][1], iterations, salt, salted)
    else:
        made = salt_password(mechanism, options["password"], iterations, salt)
    return NamedPassword(options["name"], mechanism, made)


def _options(mechanism: str, text: str, known: Sequence[str]) -> dict[str, str]:
    """A password may have commas and equals signs in it: a part without a known name belongs to the one
    before."""
    found: dict[str, str] = {}
    last = ""
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if equals and name.strip().lower() in known:
            last = name.strip().lower()
            found[last] = value.strip() if last != "password" else value
        elif last:
            found[last] += f",{part}"
        else:
            raise UsageError(f"{mechanism}: expected {', '.join(f'{each}=...' for each in known)}")
    return found


def _iterations(mechanism: str, options: Mapping[str, str]) -> int:
    text = options.get("iterations", str(MIN_ITERATIONS))
    if not text.isascii() or not text.isdigit() or not MIN_ITERATIONS <= int(text) <= MAX_ITERATIONS:
        raise UsageError(
            f"Iterations must be between {MIN_ITERATIONS} and {MAX_ITERATIONS}, for {mechanism} they are not"
        )
    return int(text)


def _base64(name: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise UsageError(f"--add-scram: {name} must be base64") from None


# --- at a broker --------------------------------------------------------------------------------------------


def alter(cluster: "Cluster", user: str, added: Mapping[str, str], removed: Sequence[str]) -> Report:
    upsertions = [
        {
            "name": user,
            "mechanism": made.mechanism,
            "iterations": made.iterations,
            "salt": made.salt,
            "salted_password": made.salted,
        }
        for made in (parse_password(name, text) for name, text in added.items())
    ]
    deletions = [{"name": user, "mechanism": MECHANISMS[name.upper()][1]} for name in removed]
    cluster.refresh([])
    answer = cluster.controller().request(
        "alter_user_scram_credentials", deletions=deletions, upsertions=upsertions
    )
    for result in answer.results:
        if result.error_code != 0:
            raise CommandFailed(f"user {result.user}: {result.error_message or result.error_code.name}")
    return Report([f"Completed updating config for user {user}."], {"user": user})


def describe(cluster: "Cluster", user: str) -> Report:
    """Of one user, or of all."""
    cluster.refresh([])
    users = [{"name": user}] if user else None
    answer = cluster.any().request("describe_user_scram_credentials", users=users)
    if answer.error_code != 0:
        raise CommandFailed(answer.error_message or answer.error_code.name)
    numbers = {number: name for name, (_, number) in MECHANISMS.items()}
    lines, data = [], []
    for result in sorted(answer.results, key=lambda each: str(each.user)):
        if result.error_code != 0:
            continue  # a user without credentials
        infos = [
            (numbers.get(int(info.mechanism), "?"), int(info.iterations)) for info in result.credential_infos
        ]
        text = ", ".join(f"{name}=iterations={iterations}" for name, iterations in infos)
        lines.append(f"SCRAM credential configs for user-principal '{result.user}' are {text}")
        data.append({"user": str(result.user), "credentials": dict(infos)})
    return Report(lines, data)
