"""Processes that may crash, hang or be killed, and the jobs that run in them.

``zygote`` starts workers by fork from a process that has torch and triton imported and CUDA untouched; ``process`` is
the parent's handle on one worker; ``child`` is what runs in it. A job is a small picklable dataclass with
``__call__(state)``.
"""
