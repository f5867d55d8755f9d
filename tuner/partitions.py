"""The partitions of a Gluon kernel: functions that ``gl.warp_specialize`` calls, each with a tuple of arguments.

``gl.warp_specialize([(producer, (buffers, BLOCK_N)), (consumer, (0, buffers))], ...)`` calls ``producer(buffers,
BLOCK_N)`` and ``consumer(0, buffers)``. There is no other way to write it, so a switch is passed by position there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

WARP_SPECIALIZE = "warp_specialize"


def partition_calls(call: ast.Call) -> Iterator[ast.Call]:
    """The calls that ``call`` makes of its partitions, as calls by position; none where it is no warp_specialize."""
    if not (isinstance(call.func, ast.Attribute) and call.func.attr == WARP_SPECIALIZE and call.args):
        return
    partitions = call.args[0]
    for pair in partitions.elts if isinstance(partitions, ast.List) else ():
        if isinstance(pair, ast.Tuple) and len(pair.elts) == 2 and isinstance(pair.elts[1], ast.Tuple):
            yield ast.copy_location(ast.Call(pair.elts[0], pair.elts[1].elts, []), pair)
