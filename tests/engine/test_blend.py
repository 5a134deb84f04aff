"""The model runner that blending is measured on is exact where it has to be, and libkvtier brings its fragments
(blend_check.py)."""

import os
import subprocess

from connected import LIBRARY, PACKAGE
from server import HERE, VENV


def test_blend_model():
    env = {**os.environ, "KVTIER_LIBRARY": str(LIBRARY), "PYTHONPATH": str(PACKAGE)}
    program = [f"{VENV}/bin/python", HERE / "blend_check.py"]
    done = subprocess.run(program, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) == 7
