"""A worker's redirect names kvway, as its client knows it, and never the worker, which the client cannot reach or would
reach past kvway's keys."""

import pytest

from rig.client import CHAT, Client, chat_body

NAMED = [("Host", "api.example.com")]
THERE = "http://api.example.com" + CHAT


def redirect(location, status=307, name="Location"):
    return lambda ex: ex.respond(status, headers=[(name, location(ex))], reason="Redirect")


def location_of(router, headers=NAMED):
    answer = router.ask("POST", CHAT + "/", headers, body=chat_body())
    assert "127.0.0.1" not in str(answer.headers)
    return answer.headers.get("location")


def test_a_redirect_to_the_host_that_the_worker_was_asked_by_leads_to_kvway(pair):
    worker, router = pair()
    worker.script = redirect(lambda ex: f"http://{ex.headers.get('host')}{CHAT}?a=b#c")
    assert location_of(router) == THERE + "?a=b#c"
    router.wait_idle()


@pytest.mark.parametrize("scheme", ["HTTP://", "//"])
def test_a_redirect_may_spell_its_scheme_as_it_likes(pair, scheme):
    worker, router = pair()
    worker.script = redirect(lambda ex: f"{scheme}127.0.0.1:{worker.port}{CHAT}")
    assert location_of(router) == THERE


def test_a_redirect_to_another_worker_leads_to_kvway(workers, kvway):
    one, two = workers(2)
    router = kvway([one, two])
    for worker, other in ((one, two), (two, one)):
        worker.script = redirect(lambda ex, other=other: other.url)
    assert location_of(router) == "http://api.example.com/"


def test_a_client_that_came_by_tls_to_a_proxy_in_front_is_sent_there(pair):
    worker, router = pair()
    worker.script = redirect(lambda ex: worker.url + CHAT)
    assert location_of(router, [*NAMED, ("X-Forwarded-Proto", "https")]) == "https" + THERE[4:]


@pytest.mark.parametrize("status", [201, 202, 301, 308])
@pytest.mark.parametrize("name", ["location", "Content-Location"])
def test_other_answers_with_an_address_have_it_written_again(pair, status, name):
    worker, router = pair()
    worker.script = redirect(lambda ex: worker.url + "/v1/x", status, name)
    answer = router.ask("POST", "/v1/jobs", NAMED, body=b"{}")
    assert (answer.status, answer.headers.get(name)) == (status, "http://api.example.com/v1/x")


@pytest.mark.parametrize("location", ["https://docs.example/x", "/v1/here", "here", "http://[::1", "http://127.0.0.1:1/x"])
def test_addresses_of_other_servers_and_paths_pass_as_they_are(pair, location):
    worker, router = pair()
    worker.script = redirect(lambda ex: location)
    answer = router.ask("POST", CHAT + "/", NAMED, body=chat_body())
    assert answer.headers.get("location") == location


@pytest.mark.parametrize("absolute", [True, False])
def test_the_prefix_of_the_worker_is_taken_off(workers, kvway, absolute):
    (worker,) = workers(1)
    router = kvway([f"{worker.url}/engine"], up=False, worker_keys={"models": ["tiny"]})
    router.wait_up()
    worker.script = redirect(lambda ex: (worker.url if absolute else "") + "/engine" + CHAT)
    assert location_of(router) == (THERE if absolute else CHAT)


def test_a_client_without_a_host_gets_the_path(pair):
    worker, router = pair()
    worker.script = redirect(lambda ex: worker.url + CHAT)
    with Client(router.port) as client:
        client.send(b"POST /v1/x HTTP/1.0\r\ncontent-length: 2\r\n\r\n{}")
        assert client.read().headers.get("location") == CHAT


def test_an_address_too_long_to_be_written_again_is_left_out(pair):
    worker, router = pair()
    worker.script = redirect(lambda ex: worker.url + "/" + "a" * 5000)
    answer = router.ask("POST", CHAT + "/", NAMED, body=chat_body())
    assert answer.status == 307 and "location" not in answer.headers
