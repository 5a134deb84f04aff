"""A network of two ends whose cable can be pulled: a namespace at the other end of a pair of veth devices."""

import ctypes
import os
import shutil
import subprocess
import threading

from rig import interfaces

CLONE_NEWNET = 0x40000000


class Cable:
    """here and there are the addresses of both ends; `there` lives in a namespace of its own."""

    def __init__(self):
        number = os.getpid() % 16384
        self.name = f"kvw{number}"
        third, fourth = divmod(number, 64)
        self.here = f"10.213.{third}.{4 * fourth + 1}"
        self.there = f"10.213.{third}.{4 * fourth + 2}"
        self.end = f"{self.name}b"
        self.made = False
        self.interfaces = None

    def make(self):
        """None, or why there can be none."""
        if os.geteuid() != 0:
            return "needs root"
        if shutil.which("ip") is None:
            return "needs the program ip"
        self.interfaces = interfaces.hold(change=True)
        try:
            self._ip("netns", "add", self.name)
            self.made = True  # from here on the name is ours to remove
            self._ip("link", "add", f"{self.name}a", "type", "veth", "peer", "name", self.end, "netns", self.name)
            self._ip("addr", "add", f"{self.here}/30", "dev", f"{self.name}a")
            self._ip("link", "set", f"{self.name}a", "up")
            self._ip("-n", self.name, "addr", "add", f"{self.there}/30", "dev", self.end)
            self._ip("-n", self.name, "link", "set", self.end, "up")
        except subprocess.CalledProcessError as error:
            self.remove()
            return f"no network namespace to be had: {error.stderr.strip()}"
        return None

    def _ip(self, *argv):
        subprocess.run(["ip", *argv], check=True, capture_output=True, text=True, timeout=10)

    def pull(self):
        """From now on nothing arrives at either end, and neither learns of it."""
        self._ip("-n", self.name, "link", "set", self.end, "down")

    def remove(self):
        if self.made:
            for what in (("link", "del", f"{self.name}a"), ("netns", "del", self.name)):
                subprocess.run(["ip", *what], check=False, capture_output=True, timeout=10)
        if self.interfaces is not None:
            os.close(self.interfaces)
        self.made, self.interfaces = False, None

    def call(self, function):
        """function() with sockets of the other end; its result."""
        result = []

        def run():
            with open(f"/run/netns/{self.name}") as namespace:
                if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), "setns")
            result.append(function())

        thread = threading.Thread(target=run)  # it alone moves to the other end, and its threads
        thread.start()
        thread.join()
        return result[0]
