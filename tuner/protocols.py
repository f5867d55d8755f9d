"""Names of the ways to time. They are stored with every measurement: a way that changes gets a new name."""

from __future__ import annotations

GRAPH_PROTOCOL = "cold-graph-1"
"""Cold L2, calls replayed from a CUDA graph; see ``tuner.timing``."""
EVENT_PROTOCOL = "cold-events-1"
"""The same where a launch cannot be captured."""
ESTIMATE_PROTOCOL = "estimate-2"
"""Nothing was timed; see ``tuner.estimating``."""
CALLER_PROTOCOL = "do_bench"
"""The function timed that the caller of ``@tuner.autotune`` gave."""
