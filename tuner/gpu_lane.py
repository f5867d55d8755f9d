"""One GPU of this machine and the process that owns it while studies run: who works there, and what is set up."""

from __future__ import annotations

from tuner.worker.process import Worker


class Lane:
    """The process that has GPU ``index``. ``uuid``: the card's, or empty; ``alone``: whether it is the only GPU used.

    ``on`` is the number of what it is at, None where it is free for another piece of work; ``desk`` says what it is set
    up for; ``ending``: it is wanted elsewhere and gets no more work from who has it.
    """

    def __init__(self, worker: Worker, index: int = 0, uuid: str = "", alone: bool = True) -> None:
        self.worker, self.index, self.uuid, self.alone = worker, index, uuid, alone
        self.on: int | None = None
        self.ending = False
        self.failed_starts = 0
        self._desk: tuple[int, str] | None = None

    @property
    def free(self) -> bool:
        """Whether nobody's job runs there."""
        return self.on is None and not self.worker.busy

    def set_up_for(self, desk: str) -> None:
        """The process that runs now is set up for ``desk``."""
        self._desk = self.worker.starts, desk

    def is_set_up_for(self, desk: str) -> bool:
        """Whether its process lives, and what was set up there last is ``desk``."""
        return self.worker.process_id != 0 and self._desk == (self.worker.starts, desk)

    def clear(self) -> None:
        """Nothing is set up there any more."""
        self._desk = None
