"""Ways in which a file is found after a bad disk, a bad copy or a bad day."""

from __future__ import annotations

import random
from pathlib import Path

DAMAGES = ("truncated", "emptied", "flipped", "zeroed", "garbage", "deleted")


def damage(path: Path, how: str, chance: random.Random) -> None:
    """Damages the file at ``path``; what is random is drawn from ``chance``. The file is never left as it was."""
    data = bytearray(path.read_bytes())
    size = len(data)
    if how == "deleted":
        path.unlink()
        return
    if how == "truncated":
        data = data[: chance.randrange(size)]
    elif how == "emptied":
        data = bytearray()
    elif how == "flipped":
        place = chance.randrange(size)
        data[place] ^= 1 << chance.randrange(8)
    elif how == "zeroed":
        # At least one byte that was not zero, and a stretch around it.
        place = chance.choice([i for i, byte in enumerate(data) if byte])
        end = min(size, place + chance.randint(1, 512))
        data[place:end] = bytes(end - place)
    elif how == "garbage":
        data = bytearray(chance.randbytes(chance.randint(1, 2 * size)))
    else:
        raise ValueError(f"no damage is called {how!r}")
    path.write_bytes(data)
