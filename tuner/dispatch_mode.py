"""A torch dispatch mode that costs nothing to begin with."""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode


class DispatchMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A ``TorchDispatchMode`` for programs that compile nothing with ``torch.compile``.

    Torch wraps a mode's ``__torch_dispatch__`` so that ``torch.compile`` leaves it alone, and what it wraps it with
    imports all of ``torch._dynamo`` at the first operator: seconds in every process, for something that no process of
    ours needs.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False
