"""A headless Chromium, driven by the DevTools protocol over a pipe: no package of Python is needed.

Chromium reads messages from its descriptor 3 and writes to 4; each is JSON and ends with a NUL byte.
"""

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import time

from rig import interfaces
from rig.wait import PATIENCE, until

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser")
OPTIONS = [
    "--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-default-apps", "--disable-sync",
    "--hide-scrollbars", "--mute-audio", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "about:blank",
]  # fmt: skip


def program():
    """None: this distribution has no Chromium that can be run (Ubuntu's package is a snap)."""
    for name in NAMES:
        path = shutil.which(name)
        if path and not os.path.realpath(path).startswith(("/snap/", "/usr/bin/snap")):
            with open(path, "rb") as file:
                if b"/snap/bin/chromium" not in file.read(4096):
                    return path
    return None


class Browser:
    """One tab."""

    def __init__(self, directory):
        self.interfaces = interfaces.hold(change=False)
        (to_read, self.to), (self.back, to_write) = os.pipe(), os.pipe()
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 20) for fd in (to_read, to_write)]
        log = os.open(directory / "chromium.log", os.O_CREAT | os.O_WRONLY)
        argv = ["setpriv", "--pdeathsig", "KILL", "--", program(), *OPTIONS, f"--user-data-dir={directory / 'profile'}"]
        actions = [(os.POSIX_SPAWN_DUP2, high[0], 3), (os.POSIX_SPAWN_DUP2, high[1], 4)]
        actions += [(os.POSIX_SPAWN_DUP2, log, fd) for fd in (1, 2)]
        self.pid = os.posix_spawnp(argv[0], argv, {**os.environ, "HOME": str(directory)}, file_actions=actions, setpgroup=0)
        for fd in (to_read, to_write, log, *high):
            os.close(fd)
        self.buffer, self.number, self.session = b"", 0, None
        self.complaints = []  # errors of the console, exceptions, refusals of the policy
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def _note(self, message):
        params = message.get("params", {})
        if message["method"] == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(params["exceptionDetails"]))
        elif message["method"] == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert", "warning"):
            self.complaints.append(json.dumps(params["args"]))
        elif message["method"] == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")

    def _read(self, deadline):
        while b"\0" not in self.buffer:
            left = deadline - time.monotonic()
            assert left > 0 and select.select([self.back], [], [], left)[0], "Chromium does not answer"
            data = os.read(self.back, 1 << 20)
            assert data, "Chromium has ended"
            self.buffer += data
        line, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(line)

    def send(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.to, data) :]
        deadline = time.monotonic() + 60 * PATIENCE
        while True:
            answer = self._read(deadline)
            if "method" in answer:
                self._note(answer)
            elif answer.get("id") == self.number:
                assert "error" not in answer, (method, answer)
                return answer["result"]

    def run(self, script):
        """The value of a script's expression, once it is no promise any more."""
        result = self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def open(self, url):
        self.send("Page.navigate", url=url)
        until(lambda: self.run("document.readyState") == "complete" and self.run("location.href") == url, 30, url)

    def shape(self, width, height=900, dark=False):
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, path):
        """The whole page as a PNG."""
        shot = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def press(self, key, code=None, text=None):
        for kind in ("keyDown", "keyUp"):
            more = {"text": text} if text and kind == "keyDown" else {}
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=code or key, windowsVirtualKeyCode=KEYS.get(key, 0), **more)

    def stop(self):
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        os.waitpid(self.pid, 0)
        os.close(self.to)
        os.close(self.back)
        os.close(self.interfaces)


KEYS = {"Tab": 9, "Enter": 13}
