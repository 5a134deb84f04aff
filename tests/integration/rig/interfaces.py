"""The machine's network interfaces, which some tests change and others want to stay as they are.

A browser gives up its requests when an interface of the machine changes (net::ERR_NETWORK_CHANGED). The lock is a file in
the build's folder, so it holds between test programs that run at the same time.
"""

import fcntl
import os

from rig.router import BUILD


def hold(change):
    """A descriptor whose close() lets go: alone with `change`, else together with others that want no change."""
    fd = os.open(BUILD / "interfaces.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX if change else fcntl.LOCK_SH)
    return fd
