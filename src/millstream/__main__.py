"""`millstream`, or `python -m millstream`.

The broker is started from here without loading the command line's libraries: it has to be up in a moment and
stay small.
"""

import sys


def main(argv: list[str] | None = None) -> int:
    arguments = sys.argv if argv is None else ["millstream", *argv]
    if len(arguments) > 1 and arguments[1] == "broker":
        from millstream.broker.main import main as run_broker

        return run_broker(arguments[2:])
    if len(arguments) > 1 and arguments[1] == "registry":
        from millstream.registry.main import main as run_registry

        return run_registry(arguments[2:])
    if arguments[1:2] == ["connect"] and arguments[2:3] in (["distributed"], ["standalone"]):
        from millstream.connect.main import main as run_connect

        return run_connect(arguments[2:])
    if len(arguments) > 1 and arguments[1] == "console":
        from millstream.console.main import main as run_console

        return run_console(arguments[2:])
    if len(arguments) > 1 and arguments[1] == "rest":
        from millstream.rest.main import main as run_rest

        return run_rest(arguments[2:])
    if len(arguments) > 1 and arguments[1] == "sql-server":
        from millstream.sql.server.main import main as run_sql_server

        return run_sql_server(arguments[2:])
    if len(arguments) > 1 and arguments[1] == "zookeeper":
        from millstream.cluster.zookeeper.server import main as run_zookeeper

        return run_zookeeper(arguments[2:])
    from millstream.cli.app import main as run_command

    return run_command(arguments[1:])


if __name__ == "__main__":
    sys.exit(main())
