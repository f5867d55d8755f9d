"""What a dispatch mode of ours takes at its first operator."""

from __future__ import annotations

import subprocess
import sys
import textwrap


def test_the_first_operator_under_a_mode_imports_nothing_of_torch_compile():
    program = textwrap.dedent("""
        import sys
        import torch
        from tuner.poisoned_allocations import PoisonedAllocations

        before = set(sys.modules)
        with PoisonedAllocations(2.0):
            assert torch.empty(3).tolist() == [2.0, 2.0, 2.0]
        print(len(set(sys.modules) - before), "torch._dynamo" in sys.modules)
    """)
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert found[1] == "False"
    assert int(found[0]) < 20, "hundreds of modules take seconds to import"
