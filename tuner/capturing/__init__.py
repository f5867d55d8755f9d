"""What a program computes that can be tuned: which problems, and how often.

``session`` is the context manager; ``torch_calls`` sees torch's own functions and operators, ``kernel_calls`` Triton's
launches, ``problems_of`` makes problems of their tensors, ``recording`` counts, ``written`` writes the problems file.
"""
