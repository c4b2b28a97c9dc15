"""`millstream console`: run the web console; `millstream console hash-password`: a line for its users
file."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.console.console_config import ConsoleConfig
    from millstream.http.serving import HttpService


def main(argv: list[str]) -> int:
    if argv[:1] == ["hash-password"]:
        return _hash_password(argv[1:])
    from millstream.console.console_config import ConsoleConfig
    from millstream.http.service_main import run_service

    return run_service(
        "console",
        argv,
        ConsoleConfig,
        _build,
        description="Run the web console, against any Kafka-compatible cluster.",
        epilog="Example: millstream console --set bootstrap.servers=localhost:9092 "
        "--set schema.registry.url=http://localhost:8081; see also: millstream console hash-password --help",
    )


def _build(config: "ConsoleConfig", ports: list[int]) -> "HttpService":
    from millstream.console.app import make_app
    from millstream.console.context import make_console
    from millstream.http.serving import HttpService

    console = make_console(config)
    return HttpService(make_app(console), console.start, console.stop, console.ending)


def _hash_password(argv: list[str]) -> int:
    import argparse
    import getpass

    parser = argparse.ArgumentParser(
        prog="millstream console hash-password",
        description="Ask for a password (or read it from standard input) and print a line for the users "
        "file.",
    )
    parser.add_argument("name", help="the user")
    parser.add_argument("--roles", default="viewer", help="viewer, editor, unmasked; separated by commas")
    arguments = parser.parse_args(argv)
    from millstream.console.users import ROLES, hash_password

    roles = [role.strip() for role in arguments.roles.split(",")]
    unknown = [role for role in roles if role not in ROLES]
    if unknown or ":" in arguments.name or not arguments.name:
        what = f"no such role: {unknown[0]}" if unknown else "a name cannot be empty or contain a colon"
        print(f"millstream console hash-password: {what}", file=sys.stderr)
        return 1
    password = getpass.getpass() if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    if not password:
        print("millstream console hash-password: an empty password is none", file=sys.stderr)
        return 1
    print(f"{arguments.name}:{hash_password(password)}:{','.join(roles)}")
    return 0
