"""Whether there is a GPU, found out without starting CUDA in the test process."""

from __future__ import annotations

import subprocess
import sys
from functools import cache


@cache
def gpu_is_here() -> bool:
    try:
        import pynvml

        pynvml.nvmlInit()
        return bool(pynvml.nvmlDeviceGetCount() > 0)
    except Exception:  # no NVML, no driver, or an AMD card: ask torch in a process of its own
        code = "import torch, sys; sys.exit(0 if torch.cuda.is_available() else 1)"
        return subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
