"""Which shard an id lives in: murmur3 and a jump consistent hash, as the node computes it."""

from __future__ import annotations

_64 = 0xFFFFFFFFFFFFFFFF


def shard_of(id: str, seed: int, shards: int) -> int:
    """The shard of an id among `shards`. `seed`: the topic's, from `GET /v1/topics/{topic}/shards`."""
    key = _murmur3_64(id.encode(), seed)
    at = nearest = 0
    while nearest < shards:
        at = nearest
        key = (key * 2862933555777941757 + 1) & _64
        nearest = int((at + 1) * (float(1 << 31) / float((key >> 33) + 1)))
    return at


def _rotl(value: int, by: int) -> int:
    return (value << by | value >> (64 - by)) & _64


def _murmur3_64(data: bytes, seed: int) -> int:
    """The first 64 bits of MurmurHash3 x64 128 bit (Austin Appleby)."""
    c1, c2 = 0x87C37B91114253D5, 0x4CF5AD432745937F

    def mixed(word: int, first: int, by: int, second: int) -> int:
        return _rotl(word * first & _64, by) * second & _64

    def final(value: int) -> int:
        value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _64
        value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _64
        return value ^ value >> 33

    a = b = seed
    whole = len(data) & ~15
    for at in range(0, whole, 16):
        a ^= mixed(int.from_bytes(data[at : at + 8], "little"), c1, 31, c2)
        a = (_rotl(a, 27) + b) * 5 + 0x52DCE729 & _64
        b ^= mixed(int.from_bytes(data[at + 8 : at + 16], "little"), c2, 33, c1)
        b = (_rotl(b, 31) + a) * 5 + 0x38495AB5 & _64
    tail = data[whole:]
    b ^= mixed(int.from_bytes(tail[8:], "little"), c2, 33, c1)
    a ^= mixed(int.from_bytes(tail[:8], "little"), c1, 31, c2)
    a, b = a ^ len(data), b ^ len(data)
    a = a + b & _64
    b = b + a & _64
    return final(a) + final(b) & _64
