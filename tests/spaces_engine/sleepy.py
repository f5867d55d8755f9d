"""A template whose import takes longer than anybody waits."""

import time

import triton

time.sleep(600)


@triton.jit
def sleepy_kernel(x_ptr):
    pass


def launch(x, out, *, num_warps):
    """Never gets here."""
    sleepy_kernel[(1,)](x, num_warps=num_warps)
