"""Runs the copy's kvway in front of simulated workers."""

import contextlib
import pathlib
import tempfile

from rig import sim as sim_rig
from rig.router import Router, write_config


def refused(tree, flat):
    """What `kvway check` says of a configuration with a mistake."""
    path = tree.scratch / "wrong.yaml"
    write_config(path, {**flat, "workers": [{"url": "http://127.0.0.1:1"}]})
    return tree.fails([tree.build / "src/router/kvway", "check", "-c", path])


@contextlib.contextmanager
def serving(tree, config, workers=1):
    """(router, kvsim), until the block ends."""
    folder = pathlib.Path(tempfile.mkdtemp(dir=tree.scratch))
    sim_rig.PROGRAM = tree.kvsim
    sim = sim_rig.Sim(folder, workers)
    router = None
    try:
        router = Router(folder, sim.workers, config)
        router.wait_up(sim.workers)
        yield router, sim
    finally:
        if router is not None:
            router.stop()
        sim.kill()
