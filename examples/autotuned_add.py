"""A kernel of one's own under @tuner.autotune: launched as before, with the fastest config that is right.

python examples/autotuned_add.py                        (on a GPU: the first run tunes, the next ones remember)
TRITON_INTERPRET=1 python examples/autotuned_add.py     (without one: nothing is timed)
"""

import torch
import triton
import triton.language as tl

import tuner


def expected(x_ptr: torch.Tensor, y_ptr: torch.Tensor, alpha: float) -> dict[str, torch.Tensor]:
    """What the kernel must leave, by argument; the tensors come in float64."""
    return {"y_ptr": y_ptr + alpha * x_ptr}


@tuner.autotune(
    [triton.Config({"BLOCK": block}, num_warps=warps) for block in (256, 1024, 4096) for warps in (2, 4, 8)],
    key=["n"],
    reference=expected,
)
@triton.jit
def add_scaled(x_ptr, y_ptr, alpha, n, BLOCK: tl.constexpr):
    """y += alpha * x, in place."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(y_ptr + at, mask=at < n) + alpha * tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, y, mask=at < n)


def main() -> None:
    """Add twice, and say what was chosen."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x, y = torch.ones(10_000, device=device), torch.zeros(10_000, device=device)
    for _ in range(2):
        add_scaled[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, 0.5, x.numel())
    print(f"y = {y.unique().tolist()}, with {add_scaled.best_config}")


if __name__ == "__main__":
    main()
