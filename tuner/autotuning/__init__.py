"""``@tuner.autotune``: takes the place of ``@triton.autotune`` on a user's unchanged kernel.

``decorator`` reads the arguments, ``autotuner`` is the object that stands for the kernel, ``tuning`` is the one loop.
Around the loop: ``kernel_source`` and ``compile_ahead`` (compiled in other processes), ``copies`` and ``bench`` (timed
on copies of the caller's tensors), ``referee`` (checked against a reference), ``identity`` and ``ledger`` (remembered,
and for how long), ``proposals`` and ``choices`` (what is tried).
"""
