"""Files are written in the background while the next steps are taken."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class BackgroundWriter:
    """One piece of work at a time in its own thread. What it writes counts as written once `wait` has returned."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="writer")
        self._work: Future[None] | None = None

    def start(self, work: Callable[[], None]) -> None:
        """Begin, when the piece before is done. Raises what that one raised."""
        self.wait()
        self._work = self._threads.submit(work)

    def wait(self) -> None:
        """Until the work is done. Raises what it raised."""
        work, self._work = self._work, None
        if work is not None:
            work.result()
