"""The Redis client behind Sentinels: a master that dies or pauses under load."""

import signal

from rig.wait import until


def all_name(setup, port):
    return all(s.master_port() == port for s in setup.sentinels if s.alive())


def test_master_killed_under_load(watched, drive):
    setup = watched()
    load = drive(setup.url(), deadline_ms=2000)
    said = load.wait_done(1000)
    assert "sentinel" in said["mode"], said
    setup.master.kill()
    setup.sentinels[0].kill()  # and the first one that is asked, too
    until(lambda: all_name(setup, setup.replica.port), 40, "Sentinels naming the replica")
    until(lambda: setup.replica.role() == "master", 20, "the replica taking over")
    written = int(setup.replica.info("stats", "total_writes_processed") or 0)
    load.wait_well(1000, 30)
    assert int(setup.replica.info("stats", "total_writes_processed") or 0) >= written
    said = load.stop()
    assert said["refused"] == 0, said
    assert setup.replica.call("DBSIZE") > 0


def follows(server):
    """A master that becomes a replica closes its clients' connections."""
    try:
        return server.role() == "slave"
    except ConnectionError:
        return False


def test_master_handed_over_under_load_fails_nothing(watched, drive):
    setup = watched()
    load = drive(setup.url(), deadline_ms=15000)
    load.wait_done(1000)
    setup.sentinels[1].call("SENTINEL", "FAILOVER", "redismaster")
    until(lambda: all_name(setup, setup.replica.port), 40, "Sentinels naming the replica")
    until(lambda: follows(setup.master), 40, "the old master following")
    load.wait_well(1000, 30)
    said = load.stop()
    for what in ["timeouts", "unreachable", "refused", "other"]:
        assert said[what] == 0, said


def test_paused_master_is_replaced_and_its_return_does_no_harm(watched, drive):
    setup = watched()
    load = drive(setup.url(), deadline_ms=500, connect_ms=500)
    load.wait_done(1000)
    setup.master.signal(signal.SIGSTOP)
    load.wait(lambda now: now["timeouts"] > 0, 20, "operations ending at their deadline")
    until(lambda: all_name(setup, setup.replica.port), 40, "Sentinels naming the replica")
    load.wait_well(500, 30)
    setup.master.signal(signal.SIGCONT)
    until(lambda: follows(setup.master), 40, "the old master following")
    load.wait_well(1000, 30)
    said = load.stop()
    assert said["refused"] == 0, said


def test_dead_sentinels_stop_no_client_that_has_a_master(watched, drive):
    setup = watched(sentinels=1)
    load = drive(setup.url(), deadline_ms=5000)
    load.wait_done(500)
    setup.sentinels[0].kill()
    # The client's connections end; it has only the server itself to ask.
    setup.master.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    load.wait_well(1000, 30)
    setup.master.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    load.wait_well(1000, 30)
    assert load.stop()["refused"] == 0


def test_a_name_that_no_sentinel_knows_is_reported(watched, drive):
    setup = watched(sentinels=1)
    load = drive(setup.url(), service="nobody")
    said = load.wait(lambda now: now["unreachable"] >= 5, 20, "operations refused")
    assert str(setup.sentinels[0].port) in said["error"], said
    load.stop()


def test_a_password_that_sentinels_do_not_know_is_no_harm_to_them(watched, drive):
    setup = watched(sentinels=1, user=["kvt", "on", ">s3cret-of-the-test", "~*", "+@all"])
    load = drive(setup.url(), username="kvt", password="s3cret-of-the-test")
    load.wait_done(500)
    said = load.stop()
    assert said["timeouts"] == said["unreachable"] == said["refused"] == 0, said
    load = drive(setup.url(), username="kvt", password="wr0ng-of-the-test")
    said = load.wait(lambda now: now["unreachable"] >= 5, 20, "operations refused")
    assert "WRONGPASS" in said["error"] and str(setup.master.port) in said["error"], said
    assert "0ng-of" not in str(load.stop()) + load.log()
