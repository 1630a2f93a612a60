"""Where uploads lie while they are served: a folder of the server's own, gone when the server is.

A server that is killed cannot clean up. So each holds a lock on its folder for as long as it lives, and the next
one that starts removes the folders of this user that nobody holds. The lock is on the folder itself: a lock file
in it would be one more thing that a cleaner of old files may take away, and systemd's leaves locked folders alone
(https://systemd.io/TEMPORARY_DIRECTORIES/). Windows, and drives without such locks, go without: nothing is
removed there.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import tempfile
import threading
from pathlib import Path

from sooner.errors import ConfigurationError

if sys.platform != "win32":
    import fcntl

__all__ = ["Spool"]

_log = logging.getLogger(__name__)
_PREFIX = "sooner-spool-"  # and not less: a folder of results may begin with the name


class Spool:
    """A folder that only this user can enter. Removed by ``close``, and at the latest when the process ends.

    Args:
        parent: where to make it; ``None`` for the system's temporary folder.

    Raises:
        ConfigurationError: nothing can be made there.
    """

    def __init__(self, parent: Path | None) -> None:
        parent = Path(tempfile.gettempdir()) if parent is None else parent
        _remove_dead(parent)
        try:
            self._folder = tempfile.TemporaryDirectory(prefix=_PREFIX, dir=parent, ignore_cleanup_errors=True)
        except OSError as error:
            raise ConfigurationError(f"--spool-dir {parent}: {error.strerror}") from error
        self._path = Path(self._folder.name)
        self._making = threading.Lock()
        self._held: int | None = None
        self._hold()

    def new_folder(self) -> Path:
        """A new folder in it, for one upload. Called in threads."""
        with self._making:
            if not self._path.is_dir():  # a cleaner of old files may have taken it
                self._path.mkdir(mode=0o700)
                self._hold()
        return Path(tempfile.mkdtemp(dir=self._path))

    def close(self) -> None:
        """Remove everything. Call when no upload is under way."""
        self._folder.cleanup()
        self._let_go()

    def _hold(self) -> None:
        self._let_go()
        try:
            self._held = _lock(self._path, wait=True)
        except OSError as error:
            _log.warning("%s cannot be locked; after a crash, remove it by hand: %s", self._path, error)

    def _let_go(self) -> None:
        if self._held is not None:
            os.close(self._held)
            self._held = None


def _lock(folder: Path, *, wait: bool) -> int | None:
    """Lock a folder. Returns a descriptor that holds the lock until it is closed; ``None`` on Windows.

    Raises:
        BlockingIOError: somebody holds it, and ``wait`` is false.
        OSError: it is no folder of ours, or the drive has no locks.
    """
    if sys.platform == "win32":
        return None
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(descriptor).st_uid != os.getuid():
            raise PermissionError(f"{folder} belongs to somebody else")
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _remove_dead(parent: Path) -> None:
    """Remove what servers of this user left that were killed."""
    for folder in parent.glob(f"{_PREFIX}*"):
        try:
            held = _lock(folder, wait=False)
        except OSError:  # in use, somebody else's, gone meanwhile, or a drive without locks: not ours to remove
            continue
        if held is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(held)
            _log.info("removed %s, left by a server that was killed", folder)
