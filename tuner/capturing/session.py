"""``with tuner.capture() as recording:`` around a program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tuner.capturing.recording import Recording
from tuner.capturing.written import write_problems
from tuner.errors import MissingError
from tuner.own_operators.files import find


@contextmanager
def capture(path: str | Path | None = None, *, operators: Iterable[str] = ()) -> Iterator[Recording]:
    """Record which operators run inside, with which shapes, dtypes and options, and how often.

    Seen are torch's softmax and its like, scaled_dot_product_attention and cross_entropy (and backward passes, as far
    as an operator computes them), the callables of exported packages, and launches of the templates' own kernels.
    ``operators``: files of your own whose operators are looked for too (``"my_ops.py:rmsnorm"``). ``path``: the
    problems file that is written at the end, also where the program fails. Nothing is changed or copied. What a
    compiled graph or the replay of a CUDA graph runs is not seen: capture the program before it is compiled.

    Raises ``UsageError`` where ``path`` is a file that was not written so, and ``MissingError`` without torch.
    """
    for operator in operators:
        find(operator)
    try:
        from tuner.capturing.kernel_calls import watching_launches
        from tuner.capturing.losses import CrossEntropies
        from tuner.capturing.torch_calls import Functions, Operators
    except ImportError as error:
        raise MissingError(f"nothing can be captured without torch ({error}); install it") from None
    recording = Recording()
    if path is not None:
        write_problems(Path(path), recording)  # refused before the program runs, not after
    try:
        losses = CrossEntropies()
        with Functions(recording, losses), Operators(recording, losses), watching_launches(recording):
            yield recording
    finally:
        if path is not None:
            write_problems(Path(path), recording)
