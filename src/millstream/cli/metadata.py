"""`millstream metadata dump`: what the metadata log holds, out of a data folder or out of ZooKeeper."""

import asyncio
import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli import shared_options
from millstream.cli.errors import CommandFailed, UsageError

if TYPE_CHECKING:
    from millstream.cluster.image import Image
    from millstream.cluster.store import MetadataStore

HELP = "Show what the metadata log holds."
HIDDEN = "[hidden]"
SECRET_FIELDS = {"salt", "stored_key", "server_key", "secret_hash"}
METADATA_FOLDER = "millstream-metadata"
PATIENCE = 10.0


def dump(
    log_dir: Annotated[
        str,
        typer.Option(
            "--log-dir",
            metavar="FOLDER",
            help="Data folder of a broker that is alone, running or not (its first log.dirs).",
            show_default=False,
        ),
    ] = "",
    zookeeper: Annotated[
        str,
        typer.Option(
            "--zookeeper-connect",
            metavar="HOST:PORT,.../PATH",
            help="ZooKeeper of several brokers, as in zookeeper.connect.",
            show_default=False,
        ),
    ] = "",
    digest: Annotated[
        str,
        typer.Option(
            "--zookeeper-digest", metavar="USER:PASSWORD", help="The user of ZooKeeper, if it has any."
        ),
    ] = "",
    version: shared_options.Version = False,
) -> int:
    """Print every record of the metadata, one JSON object a line, as a snapshot of now would hold it.

    The first line says which version of the log it is. Keys of passwords and secrets of settings are not
    shown.
    """
    if version:
        return shared_options.show_version()
    if bool(log_dir) == bool(zookeeper):
        raise UsageError("say where the metadata is: --log-dir FOLDER, or --zookeeper-connect HOST:PORT/PATH")
    image = asyncio.run(_from_folder(Path(log_dir)) if log_dir else _from_zookeeper(zookeeper, digest))
    for line in lines(image):
        print(json.dumps(line))
    return 0


def lines(image: "Image") -> Iterator[dict[str, Any]]:
    yield {"version": image.version, "controller": image.controller_id, "epoch": image.controller_epoch}
    for record in image.records():
        yield {"record": type(record).__name__, **_shown(record)}


def _shown(record: Any) -> dict[str, Any]:
    from millstream.settings.redaction import shown_value

    fields = {}
    names: Sequence[str] = getattr(record, "_fields", ()) or tuple(
        getattr(record, "__dataclass_fields__", ())
    )
    for name in names:
        value = getattr(record, name)
        if name in SECRET_FIELDS:
            value = HIDDEN
        elif name == "values" and isinstance(value, dict):
            value = {
                key: shown_value(key, one) if isinstance(one, str) else one for key, one in value.items()
            }
        fields[name] = _plain(value)
    return fields


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        named = getattr(value, "_fields", None)
        if named:
            return {name: _plain(getattr(value, name)) for name in named}
        return [_plain(one) for one in value]
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)


async def _from_folder(folder: Path) -> "Image":
    from millstream.cluster.local_store import LocalStore
    from millstream.cluster.offline import load_image
    from millstream.cluster.store import StoreError

    found = folder if folder.name == METADATA_FOLDER else folder / METADATA_FOLDER
    if not found.is_dir():
        raise CommandFailed(
            f"there is no metadata in {folder}; for several brokers, give --zookeeper-connect"
        )
    # A copy: a running broker holds the lock of its folder, and reading must not change anything.
    with tempfile.TemporaryDirectory(prefix="millstream-metadata-") as copy:
        try:
            shutil.copytree(found, copy, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".lock", "*.new"))
            store = await LocalStore.open(Path(copy))
            try:
                return await load_image(store)
            finally:
                await store.close()
        except (OSError, shutil.Error, StoreError) as error:
            raise CommandFailed(f"the metadata in {found} cannot be read: {error}") from None


async def _from_zookeeper(text: str, digest: str) -> "Image":
    from millstream.cluster.offline import load_image
    from millstream.cluster.store import StoreError
    from millstream.cluster.zookeeper.client import Client
    from millstream.cluster.zookeeper.connect_string import parse_connect_string
    from millstream.cluster.zookeeper.protocol import NoNode, ZooKeeperError
    from millstream.cluster.zookeeper.store import ZooKeeperStore

    try:
        connect = parse_connect_string(text)
    except ValueError as error:
        raise UsageError(f"--zookeeper-connect {text}: {error}") from None
    client = Client(connect, patience=PATIENCE, credentials=[("digest", digest.encode())] if digest else ())
    try:
        await client.start(PATIENCE)
        store: MetadataStore = ZooKeeperStore(client, "")
        try:
            return await load_image(store)
        finally:
            await store.close()
    except NoNode:
        raise CommandFailed(f"there is no cluster of brokers at {connect}") from None
    except (ZooKeeperError, StoreError) as error:
        raise CommandFailed(str(error)) from None


SUBCOMMANDS = {"dump": dump}
