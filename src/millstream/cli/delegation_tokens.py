"""`millstream delegation-tokens`: what kafka-delegation-tokens.sh does."""

import base64
import binascii
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli import cluster_access, shared_options
from millstream.cli.acls import principals
from millstream.cli.errors import CommandFailed, UsageError
from millstream.cli.output import Report, check_style, emit
from millstream.wire.errors import KafkaError

if TYPE_CHECKING:
    from millstream.client.security_admin import DelegationToken

ACTIONS = "--create, --renew, --expire or --describe"
COLUMNS = ["TOKENID", "HMAC", "OWNER", "REQUESTER", "RENEWERS", "ISSUEDATE", "EXPIRYDATE", "MAXDATE"]
ROW = "{:<15} {:<30} {:<15} {:<15} {:<25} {:<15} {:<15} {:<15}"
Texts = list[str]


def prepare(arguments: list[str]) -> list[str]:
    return shared_options.action_options(arguments, ("create", "renew", "expire", "describe"))


def command(
    create: Annotated[bool, typer.Option("--create", help="Create a token.")] = False,
    renew: Annotated[bool, typer.Option("--renew", help="Renew a token.")] = False,
    expire: Annotated[bool, typer.Option("--expire", help="End a token, now or later.")] = False,
    describe: Annotated[bool, typer.Option("--describe", help="Show tokens.")] = False,
    owner_principal: Annotated[
        Texts | None,
        typer.Option(help="Whose token (create), whose tokens (describe): User:NAME.", metavar="PRINCIPAL"),
    ] = None,
    renewer_principal: Annotated[
        Texts | None, typer.Option(help="Who else may renew it: User:NAME.", metavar="PRINCIPAL")
    ] = None,
    max_life_time_period: Annotated[
        int | None,
        typer.Option(help="How long it can be renewed; -1: as long as brokers allow.", metavar="MS"),
    ] = None,
    renew_time_period: Annotated[
        int | None, typer.Option(help="For how long to renew; -1: the brokers' default.", metavar="MS")
    ] = None,
    expiry_time_period: Annotated[
        int | None, typer.Option(help="When it ends; -1: now.", metavar="MS")
    ] = None,
    hmac: Annotated[str, typer.Option(help="The token's HMAC, as it was shown.", metavar="TEXT")] = "",
    bootstrap_server: shared_options.Bootstrap = "",
    command_config: shared_options.CommandConfig = "",
    output: shared_options.Output = "lines",
    version: shared_options.Version = False,
) -> int:
    """Create, renew, expire and show delegation tokens. Brokers give them to clients that have logged in."""
    if version:
        return shared_options.show_version()
    style = check_style(output)
    action = shared_options.chosen_action(
        {"create": create, "renew": renew, "expire": expire, "describe": describe}, ACTIONS
    )
    periods = {
        "max-life-time-period": max_life_time_period,
        "renew-time-period": renew_time_period,
        "expiry-time-period": expiry_time_period,
    }
    given: dict[str, object] = {
        **periods,
        "hmac": hmac,
        "owner-principal": owner_principal,
        "renewer-principal": renewer_principal,
    }
    allowed = {
        "create": ("max-life-time-period", "owner-principal", "renewer-principal"),
        "renew": ("hmac", "renew-time-period"),
        "expire": ("hmac", "expiry-time-period"),
        "describe": ("owner-principal",),
    }[action]
    for name in allowed:
        if name in ("hmac", *periods) and given[name] in (None, ""):
            raise UsageError(f'Missing required argument "[{name}]"')
    shared_options.refuse_other_options(action, given, allowed)
    token_hmac = decoded(hmac)
    owners, renewers = principals(owner_principal), principals(renewer_principal)
    properties = cluster_access.read_client_properties(command_config)
    with cluster_access.connect(bootstrap_server, properties, "millstream-delegation-tokens") as cluster:
        from millstream.client.security_admin import SecurityAdmin

        admin = SecurityAdmin(cluster)
        try:
            if action == "create":
                lifetime = max_life_time_period or -1
                token = admin.create_token(renewers, lifetime, owners[0] if owners else "")
                report = shown(
                    [
                        f"Calling create token operation with renewers :[{', '.join(renewers)}] , "
                        f"max-life-time-period :{lifetime}",
                        f"Created delegation token with tokenId : {token.token_id}",
                    ],
                    [token],
                )
            elif action == "describe":
                found = admin.describe_tokens(owners or None)
                whose = f"owners: [{', '.join(owners)}]" if owners else "current user."
                report = shown(
                    [
                        f"Calling describe token operation for {whose}",
                        f"Total number of tokens : {len(found)}",
                    ],
                    found,
                )
            else:
                period = renew_time_period if action == "renew" else expiry_time_period
                act = admin.renew_token if action == "renew" else admin.expire_token
                expires = act(token_hmac, -1 if period is None else period)
                word = "renew" if action == "renew" else "expire"
                lines = [
                    f"Calling {word} token operation with hmac :{hmac} , {word}-time-period :{period}",
                    f"Completed {word} operation. New expiry date : {moment(expires)}",
                ]
                report = Report(lines, {"expires_ms": expires}, ["Expires"], [[moment(expires)]])
        except KafkaError as error:
            raise CommandFailed(f"delegation-tokens --{action}: {error.message}") from None
    emit(report, style)
    return 0


def decoded(hmac: str) -> bytes:
    try:
        return base64.b64decode(hmac, validate=True)
    except (binascii.Error, ValueError):
        raise UsageError("--hmac is not the HMAC of a token: it is base64, as it was shown") from None


def moment(ms: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M", time.localtime(ms / 1000))


def shown(lines: list[str], tokens: "Sequence[DelegationToken]") -> Report:
    rows = [
        [
            token.token_id,
            base64.b64encode(token.hmac).decode(),
            token.owner,
            token.requester,
            ",".join(token.renewers),
            moment(token.issued_ms),
            moment(token.expires_ms),
            moment(token.max_ms),
        ]
        for token in tokens
    ]
    data: list[dict[str, Any]] = [
        {**token._asdict(), "hmac": row[1]} for token, row in zip(tokens, rows, strict=True)
    ]
    table = [line for row in (COLUMNS, *rows) for line in ("", ROW.format(*row))]
    return Report([*lines, *table], data, COLUMNS, rows)
