"""The metadata log of a broker that does not run: read it, decide a command on it, write what it comes to.

For what must be possible without logging in: the first admin, and a new password for one who is locked out.
The folder is locked meanwhile, so a running broker and this cannot both write.
"""

from pathlib import Path
from typing import Any

from millstream.cluster.commands import Command
from millstream.cluster.context import Context
from millstream.cluster.controller import decide
from millstream.cluster.image import Image
from millstream.cluster.local_store import LocalStore
from millstream.cluster.metadata_records import Decoder, encode
from millstream.cluster.store import MetadataStore
from millstream.wire.errors import KafkaError


async def load_image(store: MetadataStore) -> Image:
    """Everything that the store holds now."""
    version, chunks = await store.snapshot()
    image = Image()
    image.version = version
    decoder = Decoder()
    for chunk in chunks:
        image.load(decoder.decode(chunk)[1], version)
    while entries := await store.read(image.version):
        for entry in entries:
            image.load(decoder.decode(entry.payload)[1], entry.version)
    return image


async def submit_offline(folder: Path, command: Command[Any]) -> Any:
    """The reply to a command. StoreError, UnknownMetadata or KafkaError if it cannot be had."""
    store = await LocalStore.open(folder)
    try:
        image = await load_image(store)
        decision = decide(image, command, Context())
        if isinstance(decision.reply, KafkaError):
            raise decision.reply
        if decision.records:
            await store.append(image.version + 1, encode(decision.records, image.controller_epoch))
        return decision.reply
    finally:
        await store.close()
