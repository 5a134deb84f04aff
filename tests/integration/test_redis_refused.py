"""The Redis client and servers that it must refuse, or that refuse it: the message is clear and
holds no secret, and nothing is stored."""

import pytest

from rig.redis_cluster import Cluster, Drive, Server
from rig.tls import Authority
from rig.wait import Port

PASSWORD = "s3cret-of-the-test"
WRONG = "wr0ng-of-the-test"


@pytest.fixture
def server(tmp_path):
    """server(**options): a redis-server that ends with the test."""
    made = []

    def make(**options):
        made.append(Server(tmp_path, **options))
        return made[-1]

    yield make
    for one in made:
        one.stop()


@pytest.fixture
def port():
    kept = Port()
    yield kept.number
    kept.close()


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


def tls_options(authority, port, names="IP:127.0.0.1,DNS:localhost", clients="no"):
    """A TLS port in addition to the plain one, which the test itself uses."""
    cert, key = authority.issue("server", names)
    return {
        "tls_port": port,
        "tls_cert_file": cert,
        "tls_key_file": key,
        "tls_ca_cert_file": authority.cert,
        "tls_auth_clients": clients,
    }


def driven(tmp_path, url, until, **options):
    load = Drive(url, tmp_path / "drive.log", **options)
    try:
        load.wait(until, 20, "operations ending as expected")
        said = load.stop()
        for secret in [PASSWORD, WRONG]:
            assert secret not in str(said) and secret not in load.log(), (said, load.log())
    finally:
        load.kill()
    return said


def refusal(tmp_path, url, **options):
    """The error of a load without any success."""
    said = driven(tmp_path, url, lambda now: now["unreachable"] >= 5, **options)
    assert said["stored"] == said["hits"] == said["nils"] == said["refused"] == 0, said
    return said["error"]


def works(tmp_path, url, **options):
    said = driven(tmp_path, url, lambda now: now["stored"] + now["hits"] >= 200, **options)
    assert said["timeouts"] == said["unreachable"] == said["refused"] == 0, said


# --- certificates -------------------------------------------------------------------------------


def test_tls_with_the_right_authority(tmp_path, server, authority, port):
    server(**tls_options(authority, port))
    works(tmp_path, f"rediss://127.0.0.1:{port}", ca=authority.cert)
    works(tmp_path, f"rediss://localhost:{port}", ca=authority.cert)


def test_a_certificate_of_another_authority_is_refused(tmp_path, server, authority, port):
    one = server(**tls_options(authority, port))
    other = Authority(tmp_path, "other")
    for options in [{"ca": other.cert}, {}]:  # {}: the system's authorities
        error = refusal(tmp_path, f"rediss://127.0.0.1:{port}", **options)
        assert "certificate" in error, error
    assert one.call("DBSIZE") == 0


def test_a_certificate_for_another_name_is_refused(tmp_path, server, authority, port):
    server(**tls_options(authority, port, names="DNS:redis.example"))
    error = refusal(tmp_path, f"rediss://127.0.0.1:{port}", ca=authority.cert)
    assert "mismatch" in error, error


def test_a_client_certificate_that_is_wanted(tmp_path, server, authority, port):
    server(**tls_options(authority, port, clients="yes"))
    refusal(tmp_path, f"rediss://127.0.0.1:{port}", ca=authority.cert)
    cert, key = authority.issue("client", "DNS:client.example")
    url = f"rediss://127.0.0.1:{port}"
    works(tmp_path, url, ca=authority.cert, certificate=cert, key=key)


def test_tls_to_a_plain_port_and_plain_to_a_tls_port(tmp_path, server, authority, port):
    one = server(**tls_options(authority, port))
    refusal(tmp_path, f"rediss://127.0.0.1:{one.port}", ca=authority.cert)
    refusal(tmp_path, f"redis://127.0.0.1:{port}")


def test_a_cluster_with_tls_and_a_user(tmp_path, authority):
    """Servers give their TLS ports to clients that connect over TLS."""
    ports = [Port() for _ in range(3)]
    cert, key = authority.issue("server", "IP:127.0.0.1")
    nodes = None
    try:
        nodes = Cluster(
            tmp_path,
            each=[{"tls_port": p.number} for p in ports],
            tls_cert_file=cert,
            tls_key_file=key,
            tls_ca_cert_file=authority.cert,
            tls_auth_clients="no",
            tls_cluster="yes",
            user=["kvt", "on", f">{PASSWORD}", "~*", "+@all"],
        )
        url = f"127.0.0.1:{ports[0].number}"
        login = {"username": "kvt", "password": PASSWORD, "ca": authority.cert}
        works(tmp_path, f"rediss-cluster://{url}", **login)
        assert all(node.call("DBSIZE") > 0 for node in nodes.masters)
        error = refusal(tmp_path, f"rediss-cluster://{url}", **{**login, "password": WRONG})
        assert "WRONGPASS" in error, error
        other = Authority(tmp_path, "other")
        error = refusal(tmp_path, f"rediss-cluster://{url}", **{**login, "ca": other.cert})
        assert "certificate" in error, error
    finally:
        if nodes is not None:
            nodes.stop()
        for kept in ports:
            kept.close()


# --- users --------------------------------------------------------------------------------------


def test_a_user_of_the_url_or_of_the_options(tmp_path, server):
    one = server(user=["kvt", "on", f">{PASSWORD}", "~*", "+@all"])
    works(tmp_path, f"redis://kvt:{PASSWORD}@127.0.0.1:{one.port}")
    works(tmp_path, f"redis://127.0.0.1:{one.port}", username="kvt", password=PASSWORD)


@pytest.mark.parametrize("name", ["kvt", "nobody"])
def test_a_wrong_password_is_refused(tmp_path, server, name):
    one = server(user=["kvt", "on", f">{PASSWORD}", "~*", "+@all"])
    url = f"redis://127.0.0.1:{one.port}"
    error = refusal(tmp_path, url, username=name, password=WRONG)
    assert "WRONGPASS" in error, error
    assert one.call("DBSIZE") == 0


def test_no_password_where_one_is_needed(tmp_path, server):
    one = server()
    one.call("CONFIG", "SET", "requirepass", PASSWORD)
    load = Drive(f"redis://127.0.0.1:{one.port}", tmp_path / "none.log")
    try:
        said = load.wait(lambda now: now["unreachable"] + now["refused"] >= 5, 20, "refusals")
        assert said["stored"] == 0 and "NOAUTH" in said["error"], said
        load.stop()
    finally:
        load.kill()
    works(tmp_path, f"redis://127.0.0.1:{one.port}", password=PASSWORD)


def test_a_user_without_write_permission_learns_why(tmp_path, server):
    one = server(user=["kvt", "on", f">{PASSWORD}", "~*", "+@read", "+@connection"])
    url = f"redis://kvt:{PASSWORD}@127.0.0.1:{one.port}"
    said = driven(tmp_path, url, lambda now: now["refused"] >= 5)
    assert "NOPERM" in said["error"] and said["stored"] == 0, said
