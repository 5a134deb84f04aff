"""The Redis client in a real cluster: slots that move, servers that pause, join and leave.

redis-drive checks every byte; what each test adds is what may be missing, and what may not.
"""

import signal

from rig.redis_cluster import Server
from rig.wait import until

# One slot: every key has this tag.
TAG = "{kvt}:"
TAG_SLOT = 14198


def nothing_missing(said):
    """Every operation went well, and nothing that was stored was lost."""
    for what in ["timeouts", "unreachable", "refused", "other", "gone", "stale"]:
        assert said[what] == 0, (what, said)


def test_load_goes_to_every_master_and_each_knows_its_part(cluster, drive):
    nodes = cluster(3)
    load = drive(nodes.url())
    said = load.wait_done(1000)
    assert said["servers"] >= 3, said
    assert "cluster of 3" in said["mode"], said
    assert all(node.call("DBSIZE") > 0 for node in nodes.masters)
    said = load.stop()
    nothing_missing(said)
    assert said["redirects"] == 0, said  # the map was right from the first command on


def test_one_seed_is_enough_and_a_dead_one_does_no_harm(cluster, drive):
    nodes = cluster(3)
    dead = nodes.nodes[0].bus_kept  # no Redis server: it is bound and answers rubbish
    load = drive(f"redis-cluster://127.0.0.1:{dead.number},localhost:{nodes.nodes[2].port}")
    load.wait_done(500)
    nothing_missing(load.stop())


def test_slot_migrated_under_load_to_a_server_that_had_none(cluster, drive):
    nodes = cluster(2, spare=1)
    spare = nodes.spares[0]
    nodes.join(spare)
    load = drive(nodes.url(), prefix=TAG, keys=300, depth=12, bytes=8192, every_ms=5)
    load.wait_done(1500)
    source = next(n for n in nodes.masters if n.owner_of(TAG_SLOT) == n.port)
    assert source.call("CLUSTER", "COUNTKEYSINSLOT", TAG_SLOT) > 200

    def few():
        """Some load between one key's move and the next, so that most commands meet a slot that
        is here and there."""
        load.wait_done(5)

    nodes.move_slot(TAG_SLOT, source, spare, few)
    moved = load.wait_done(500)
    assert moved["redirects"] > 0, moved
    nothing_missing(moved)
    assert spare.call("CLUSTER", "COUNTKEYSINSLOT", TAG_SLOT) > 200
    nodes.move_slot(TAG_SLOT, spare, source, few)
    load.wait_done(500)
    nothing_missing(load.stop())
    assert spare.call("CLUSTER", "COUNTKEYSINSLOT", TAG_SLOT) == 0


def test_many_slots_change_hands_and_the_old_owner_leaves(cluster, drive):
    nodes = cluster(2, spare=1)
    spare, leaving = nodes.spares[0], nodes.masters[1]
    nodes.join(spare)
    load = drive(nodes.url(), keys=100, depth=8, deadline_ms=8000, connections=1)
    until(lambda: sum(n.call("DBSIZE") for n in nodes.masters) == 100, 20, "every key stored")
    ranges = leaving.call("CLUSTER", "SLOTS")
    slots = range(*next((a, b + 1) for a, b, m, *_ in ranges if m[1] == leaving.port))
    full = [slot for slot in slots if leaving.call("CLUSTER", "COUNTKEYSINSLOT", slot) > 0]
    assert full
    for slot in full:
        nodes.move_slot(slot, leaving, spare)
    nodes.move_empty_slots([slot for slot in slots if slot not in set(full)], leaving, spare)
    name = leaving.id()
    for node in [nodes.masters[0], spare]:
        node.call("CLUSTER", "FORGET", name)
    leaving.call("CLUSTER", "RESET", "SOFT")
    load.wait_done(500)
    load.wait(lambda now: "cluster of 2" in now["mode"], 30, "a map of two masters")
    leaving.kill()
    load.wait_well(500)
    said = load.stop()
    nothing_missing(said)


def test_paused_master_delays_no_command_beyond_the_deadline(cluster, drive):
    nodes = cluster(3, timeout_ms=60000)
    load = drive(nodes.url(), depth=12, deadline_ms=300, connect_ms=300)
    load.wait_done(1000)
    before = load.now
    paused = nodes.masters[0]
    paused.signal(signal.SIGSTOP)
    said = load.wait(
        lambda now: now["timeouts"] + now["unreachable"] >= before["timeouts"] + 10,
        20,
        "operations on the paused master ending",
    )
    load.wait_done(200)  # the other masters' keys
    paused.signal(signal.SIGCONT)
    load.wait_well(1000)
    said = load.stop()
    assert said["refused"] == 0, said


def test_whole_cluster_dead_is_reported_at_once_and_found_again(cluster, drive):
    nodes = cluster(3)
    load = drive(nodes.url(), deadline_ms=3000)
    load.wait_done(500)
    for node in nodes.nodes:
        node.signal(signal.SIGKILL)
    said = load.wait(lambda now: now["unreachable"] >= 50, 20, "operations failing")
    assert "127.0.0.1:" in said["error"], said
    nodes.restart()
    load.wait_well(500, 30)
    assert load.stop()["refused"] == 0


def test_a_server_that_is_no_cluster_is_refused_clearly(tmp_path, drive):
    server = Server(tmp_path)
    try:
        load = drive(f"redis-cluster://127.0.0.1:{server.port}")
        said = load.wait(lambda now: now["unreachable"] >= 5, 10, "operations refused")
        assert "cluster support disabled" in said["error"], said
        load.stop()
    finally:
        server.stop()
