"""Kafka's default partitioner, for judges that rely on no code of this project."""


def murmur2(key):
    """From its published constants."""
    m, h = 0x5BD1E995, 0x9747B28C ^ len(key)
    whole = len(key) - len(key) % 4
    for at in range(0, whole, 4):
        k = int.from_bytes(key[at : at + 4], "little") * m & 0xFFFFFFFF
        h = (h * m ^ (k ^ k >> 24) * m) & 0xFFFFFFFF
    if whole < len(key):
        h = (h ^ int.from_bytes(key[whole:], "little")) * m & 0xFFFFFFFF
    h = (h ^ h >> 13) * m & 0xFFFFFFFF
    return h ^ h >> 15


assert murmur2(b"foobar") == -790332482 & 0xFFFFFFFF and murmur2(b"abc") == 479470107
