"""`millstream console`: run the web console; `millstream console hash-password`: a line for its users file."""

import asyncio
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.console.console_config import ConsoleSettings


def main(argv: list[str]) -> int:
    if argv[:1] == ["hash-password"]:
        return _hash_password(argv[1:])
    from millstream.console.console_config import SETTINGS, ConsoleSettings
    from millstream.http import serving

    try:
        given = serving.properties(
            argv,
            "console",
            SETTINGS,
            "Run the web console, against any Kafka-compatible cluster.",
            "Example: millstream console --set bootstrap.servers=localhost:9092 "
            "--set schema.registry.url=http://localhost:8081; see also: millstream console hash-password --help",
        )
        settings = ConsoleSettings(given)
        serving.start_logging(settings)
        return _run(settings)
    except (OSError, ValueError) as error:
        print(f"millstream console: {error}", file=sys.stderr)
        return 1


def _run(settings: "ConsoleSettings") -> int:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(settings))


async def _serve(settings: "ConsoleSettings") -> int:
    from millstream.console.app import make_app
    from millstream.console.context import make_console
    from millstream.http import serving

    sockets = serving.bind(settings)
    console = make_console(settings)
    return await serving.serve(
        "console", settings, sockets, make_app(console), console.start, console.stop, ending=console.ending
    )


def _hash_password(argv: list[str]) -> int:
    import argparse
    import getpass

    parser = argparse.ArgumentParser(
        prog="millstream console hash-password",
        description="Ask for a password (or read it from standard input) and print a line for the users file.",
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
