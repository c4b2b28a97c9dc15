"""The hash by which Kafka's clients choose a partition for a key: 32-bit MurmurHash2 with Kafka's seed."""

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The unsigned 32-bit hash of `data`."""
    length = len(data)
    digest = (_SEED ^ length) & _MASK
    whole = length & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ (word >> 24)) * _MULTIPLIER & _MASK
        digest = (digest * _MULTIPLIER & _MASK) ^ word
    if whole != length:
        digest = (digest ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    digest = (digest ^ (digest >> 13)) * _MULTIPLIER & _MASK
    return digest ^ (digest >> 15)


def partition_for(key: bytes, partitions: int) -> int:
    """The partition that Java's default partitioner picks for this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
