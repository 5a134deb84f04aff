"""Where replicas of kvway share their load: behind Sentinels, in a Cluster, over TLS, as a user of few rights."""

import pytest
from rig.client import CHAT, chat_body
from rig.redis import RedisError
from rig.redis_cluster import Cluster, Server
from rig.tls import Authority
from rig.wait import Port, until
from test_replicas import SHARE, degraded, settle

PASSWORD, WRONG = "s3cret-of-the-test", "wr0ng-of-the-test"
LOAD = "{kvway:default}:load"
# All that replicas need; the documentation of this says so, too.
RIGHTS = "+eval +time +hset +hdel +hgetall +zadd +zrem +zrangebyscore +pexpire +@connection".split()


def pair_of(kvway, workers, url, **more):
    """Two replicas that share by this URL."""
    fleet = workers(1)
    return [kvway(fleet, {"replicas.redis": url, **SHARE, **more}) for _ in range(2)]


def serve(routers):
    for router in routers:
        assert router.ask("POST", CHAT, (), chat_body()).status == 200


def says_nothing_secret(routers):
    for router in routers:
        assert PASSWORD not in router.log() and WRONG not in router.log()


@pytest.fixture
def server(tmp_path):
    made = []

    def make(**options):
        made.append(Server(tmp_path, f"redis{len(made)}", **options))
        return made[-1]

    yield make
    for one in made:
        one.stop()


@pytest.fixture
def authority(tmp_path, monkeypatch):
    """What the system trusts, as far as these kvways are concerned."""
    made = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(made.cert))
    return made


@pytest.fixture
def port():
    kept = Port()
    yield kept.number
    kept.close()


def tls_of(authority, names="IP:127.0.0.1"):
    cert, key = authority.issue("server", names)
    return {"tls_cert_file": cert, "tls_key_file": key, "tls_ca_cert_file": authority.cert, "tls_auth_clients": "no"}


def test_the_master_behind_sentinels_dies(kvway, workers, watched):
    setup = watched()
    routers = pair_of(kvway, workers, setup.url())
    settle(routers)
    assert setup.master.call("HLEN", LOAD) == 2
    setup.master.kill()
    until(lambda: any(degraded(r) for r in routers), 20, "load shown as degraded")
    serve(routers)
    until(lambda: setup.replica.role() == "master", 40, "the replica taking over")
    until(lambda: setup.replica.call("HLEN", LOAD) == 2, 40, "load in the new master")
    settle(routers)
    serve(routers)


def test_a_cluster_whose_slot_moves(kvway, workers, cluster):
    nodes = cluster(2)
    routers = pair_of(kvway, workers, nodes.url())
    settle(routers)
    slot = nodes.masters[0].call("CLUSTER", "KEYSLOT", LOAD)
    source = next(n for n in nodes.masters if n.owner_of(slot) == n.port)
    target = next(n for n in nodes.masters if n is not source)
    assert source.call("HLEN", LOAD) == 2
    nodes.move_slot(slot, source, target)
    until(lambda: target.call("HLEN", LOAD) == 2, 20, "load in the other master")
    settle(routers)
    serve(routers)


def test_over_tls_and_only_to_servers_that_are_trusted(kvway, workers, server, authority, port, monkeypatch, tmp_path):
    server(tls_port=port, **tls_of(authority))
    url = f"rediss://127.0.0.1:{port}"
    routers = pair_of(kvway, workers, url)
    settle(routers)
    monkeypatch.setenv("SSL_CERT_FILE", str(Authority(tmp_path, "other").cert))
    stranger = kvway(workers(1), {"replicas.redis": url, **SHARE})
    until(lambda: "certificate" in stranger.log(), 20, "the reason in the log")
    assert degraded(stranger) == 1
    serve([stranger])
    settle(routers)


def test_a_cluster_with_tls_and_a_user(kvway, workers, tmp_path, authority):
    ports = [Port() for _ in range(2)]
    nodes = None
    try:
        each = [{"tls_port": p.number} for p in ports]
        user = ["kvt", "on", f">{PASSWORD}", "~*", "+@all"]
        nodes = Cluster(tmp_path, 2, each=each, tls_cluster="yes", user=user, **tls_of(authority))
        routers = pair_of(kvway, workers, f"rediss-cluster://kvt:{PASSWORD}@127.0.0.1:{ports[0].number}")
        settle(routers)
        says_nothing_secret(routers)
    finally:
        if nodes is not None:
            nodes.stop()
        for kept in ports:
            kept.close()


def test_a_user_needs_few_rights_and_without_them_load_is_not_shared(kvway, workers, server):
    one = server(user=["kvt", "on", f">{PASSWORD}", "~{kvway:*", *RIGHTS])
    url = f"redis://kvt:{{}}@127.0.0.1:{one.port}"
    routers = pair_of(kvway, workers, url.format(PASSWORD))
    settle(routers)
    refused = kvway(workers(1), {"replicas.redis": url.format(WRONG), **SHARE})
    until(lambda: "WRONGPASS" in refused.log(), 20, "the reason in the log")
    assert degraded(refused) == 1
    one.call("ACL", "SETUSER", "kvt", "-hset")
    until(lambda: all(degraded(r) == 1 for r in routers), 20, "load shown as degraded")
    serve([*routers, refused])
    one.call("ACL", "SETUSER", "kvt", "+hset")
    settle(routers)
    says_nothing_secret([*routers, refused])


def test_the_other_keys_of_that_server_are_out_of_reach(server):
    one = server(user=["kvt", "on", f">{PASSWORD}", "~{kvway:*", *RIGHTS])
    with one.connect() as redis:
        redis.cmd("AUTH", "kvt", PASSWORD)
        with pytest.raises(RedisError, match="NOPERM"):
            redis.cmd("HSET", "kvtier:1", "a", "b")
