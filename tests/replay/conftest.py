"""Recorded spaces whose best config is known, written as files."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

HEADER = "BLOCK,num_warps,LOADS,status,time_ms,compile_ms,check_ms,bench_ms"


def table_text() -> str:
    """8 * 4 * 3 configs of which BLOCK 64 with 16 warps is not valid, and tma with BLOCK 8192 does not compile.

    The fastest is BLOCK=1024,num_warps=8,LOADS=tma with 2 ms; each miss makes it 1.3 times slower.
    """
    lines = ['#{"device": "none", "rows": 93}', HEADER]
    for block, warps, loads in product((64, 128, 256, 512, 1024, 2048, 4096, 8192), (2, 4, 8, 16), "abt"):
        if (block, warps) == (64, 16):
            continue
        name = {"a": "pointer", "b": "block", "t": "tma"}[loads]
        if block == 8192 and name == "tma":
            lines.append(f"{block},{warps},{name},compile,,500,,")
            continue
        miss = abs(math.log2(block / 1024)) + abs(math.log2(warps / 8)) + "tba".index(loads)
        lines.append(f"{block},{warps},{name},ok,{2.0 * 1.3**miss:.6f},1000,250,750")
    return "\n".join(lines) + "\n"


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """The table as a gzip'd file."""
    path = tmp_path / "toy.csv.gz"
    path.write_bytes(gzip.compress(table_text().encode()))
    return path


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str, object], Path]:
    """Writes text, or an object as JSON, into a file of that name."""

    def write(name: str, content: object) -> Path:
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return write
