"""Which of two rows about one thing is kept when databases are joined. Pure.

Every rule is the larger (or smaller) of two in a total order that looks at what is kept only, so that joining in any
order, and as often as one likes, gives the same rows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from tuner.store.records import FINISHED, INTERRUPTED, RUNNING
from tuner.trial import Outcome

Row = Mapping[str, Any]

# Of two outcomes of one trial. Wrong once is wrong, whatever was promised; then as when a trial is recorded again.
_WEIGHT = {Outcome.PRUNED.value: 0, Outcome.TIMED.value: 2, Outcome.WRONG.value: 3}
_OTHER_WEIGHT = 1
_MOMENTS = ("created_at", "updated_at")
_BUDGET = ("max_trials", "max_seconds")
_LAST_RUN = ("sampler", "seed", "protocol", "space_size")


def joined_content(mine: Row, theirs: Row) -> dict[str, Any]:
    """Devices, stacks, problems, spaces and variants: keyed by content, of which some is not in the key."""
    chosen = max(mine, theirs, key=_text)
    return {**chosen, "created_at": min(mine["created_at"], theirs["created_at"])}


def joined_trial(mine: Row, theirs: Row) -> dict[str, Any]:
    """Trials: the better-informed outcome."""
    chosen = max(mine, theirs, key=lambda row: (_WEIGHT.get(row["outcome"], _OTHER_WEIGHT), _text(row)))
    return {
        **chosen,
        "created_at": min(mine["created_at"], theirs["created_at"]),
        "updated_at": max(mine["updated_at"], theirs["updated_at"]),
    }


def joined_study(mine: Row, theirs: Row) -> dict[str, Any]:
    """Studies: the larger budget, the last run's sampler, the longer times, finished where it is in either.

    Its own name is kept. Seconds are not added: the same run may be in both. A budget without a limit is the larger.
    """
    last = max(mine, theirs, key=lambda row: (row["updated_at"], _text({name: row[name] for name in _LAST_RUN})))
    larger = max(mine, theirs, key=lambda row: [math.inf if row[name] is None else row[name] for name in _BUDGET])
    ends = [row["finished_at"] for row in (mine, theirs) if row["finished_at"] is not None]
    return {
        **mine,
        **{name: last[name] for name in _LAST_RUN},
        **{name: larger[name] for name in _BUDGET},
        "uid": min(mine["uid"], theirs["uid"]),
        "state": _state(mine["state"], theirs["state"]),
        "wall_s": max(mine["wall_s"], theirs["wall_s"]),
        "gpu_busy_s": max(mine["gpu_busy_s"], theirs["gpu_busy_s"]),
        "created_at": min(mine["created_at"], theirs["created_at"]),
        "updated_at": max(mine["updated_at"], theirs["updated_at"]),
        "finished_at": max(ends, default=None),
    }


def joined_winner(mine: Row, theirs: Row) -> dict[str, Any]:
    """Winners: none is ever changed, so two of one ``uid`` differ only where one was edited; it has its own ids."""
    ids = ("id", "study_id", "trial_id")
    chosen = max(mine, theirs, key=lambda row: _text({k: v for k, v in row.items() if k not in ids}))
    return {**chosen, **{name: mine[name] for name in ids}, "created_at": min(mine["created_at"], theirs["created_at"])}


def arriving_state(state: str) -> str:
    """The state of a study that comes from elsewhere: whoever runs it there does not run it here."""
    return INTERRUPTED if state == RUNNING else state


def _state(mine: str, theirs: str) -> str:
    # Only what runs here is running; it says so itself when it ends.
    if mine == RUNNING:
        return RUNNING
    return FINISHED if FINISHED in (mine, arriving_state(theirs)) else INTERRUPTED


def _text(row: Row) -> str:
    """The row's content as text, without moments, for an order of rows that nothing else tells apart."""
    content = {name: value for name, value in row.items() if name not in _MOMENTS}
    return json.dumps(content, sort_keys=True, default=str)
