"""The model runner that blending is measured on is exact where it has to be (blend_check.py)."""

import subprocess

from server import HERE, VENV


def test_blend_model():
    done = subprocess.run([f"{VENV}/bin/python", HERE / "blend_check.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) == 4
