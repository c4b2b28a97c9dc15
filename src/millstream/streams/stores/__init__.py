"""What operators remember: by key, by key and window, by key and session, and two buffers.

Operators know stores by the four interfaces of `base`; keys are bytes there (what the key's serde gives),
values are objects. `memory` keeps everything in dictionaries (test driver, and the state of one task between
two commits); `lmdb` keeps it on disk. Every store can tell what changed since the last commit: that goes to
its changelog topic, and brings it back.
"""

from millstream.streams.stores.base import (
    KeyValueStore,
    OuterJoinStore,
    SessionStore,
    Store,
    StoreSpec,
    SuppressBuffer,
    WindowStore,
)

__all__ = [
    "KeyValueStore",
    "OuterJoinStore",
    "SessionStore",
    "Store",
    "StoreSpec",
    "SuppressBuffer",
    "WindowStore",
]
