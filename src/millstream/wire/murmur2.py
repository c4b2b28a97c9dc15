"""The hash by which Kafka's clients choose a partition for a key: 32-bit MurmurHash2 with Kafka's seed."""

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The unsigned 32-bit hash of `data`."""
    length = len(data)
    h = (_SEED ^ length) & _MASK
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        k = (k ^ (k >> 24)) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if whole != length:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    return h ^ (h >> 15)


def partition_for(key: bytes, partitions: int) -> int:
    """The partition that Java's default partitioner picks for this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
