"""The Redis client in a real cluster whose masters have replicas: masters die and hang under load,
and their replicas take over. redis-drive checks every byte.
"""

import random
import signal
import time

from rig.redis import RedisError
from rig.wait import until


def test_master_killed_under_load(cluster, drive):
    nodes = cluster(3, replicas=1)
    load = drive(nodes.url(), depth=12, deadline_ms=4000)
    load.wait_done(1500)
    victim = nodes.masters[1]
    slots = victim.owners()[victim.port]
    victim.kill()
    others = [nodes.masters[0], nodes.masters[2]]
    heir = nodes.replicas[1]  # on a busy machine others may change roles as well
    until(lambda: heir.role() == "master", 30, "the replica taking over")
    until(
        lambda: all(n.owners().get(heir.port) == slots for n in others + [heir]),
        30,
        "everybody knowing the new master",
    )
    nodes.wait_ok(others + [heir])
    stored = heir.call("DBSIZE")
    load.wait_well(1500)
    assert heir.info("stats", "total_commands_processed") is not None
    until(lambda: heir.call("DBSIZE") >= stored, 5, "keys at the new master")
    said = load.stop()
    assert said["refused"] == 0, said  # no error of the change came through
    assert "cluster of 3" in said["mode"], said


def test_paused_master_is_replaced_and_nothing_waits_for_it(cluster, drive):
    """Commands that hang on its connections go to its heir, long before their deadline."""
    nodes = cluster(3, replicas=1)
    load = drive(nodes.url(), depth=24, deadline_ms=30000)
    load.wait_done(1000)
    paused = nodes.masters[0]
    paused.signal(signal.SIGSTOP)
    heir = nodes.replicas[0]  # on a busy machine others may change roles as well
    until(lambda: heir.role() == "master", 30, "the replica taking over")
    load.wait_well(2000)
    paused.signal(signal.SIGCONT)
    until(lambda: paused.role() == "slave", 30, "the old master following")
    load.wait_well(1000)
    said = load.stop()
    assert heir.role() == "master"
    for what in ["timeouts", "unreachable", "refused", "other"]:
        assert said[what] == 0, (what, said)


def some_trouble(nodes, chance):
    """One thing that happens to clusters. What the servers make of it is theirs to say."""
    node = chance.choice(nodes)
    try:
        match chance.choice(["pause", "kill", "hand over", "cut", "delay"]):
            case "pause":
                node.signal(signal.SIGSTOP)
                time.sleep(chance.uniform(0.1, 2))
                node.signal(signal.SIGCONT)
            case "kill":
                node.signal(signal.SIGKILL)
                time.sleep(chance.uniform(0.1, 3))
                node.restart()
            case "hand over":
                replica = chance.choice([n for n in nodes if n.role() == "slave"])
                replica.call("CLUSTER", "FAILOVER")
            case "cut":
                for each in nodes:
                    each.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            case "delay":
                node.call("CLIENT", "PAUSE", "400")
    except (OSError, RedisError, IndexError):
        pass


def test_whatever_happens_no_byte_is_wrong(cluster, drive):
    nodes = cluster(3, replicas=1, timeout_ms=1000)
    load = drive(nodes.url(), depth=12, keys=120, deadline_ms=2000, bytes=300000)
    load.wait_done(300)
    chance = random.Random(41)
    end = time.monotonic() + 15
    while time.monotonic() < end:
        some_trouble(nodes.nodes, chance)
    nodes.wait_ok(nodes.nodes)
    load.wait_well(300, 30)
    assert load.stop()["refused"] == 0
