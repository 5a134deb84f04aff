"""Copies of requests of temperature 0: does the group that is watched write what the client's group wrote?"""

import json
import threading

import pytest
from rig.client import CHAT, COMPLETIONS, Client, chat_body
from rig.wait import until
from test_groups import command, start

SAME = "Die Antwort \u4f60\u597d \u00e9 \U0001f600 \"quoted\"\n"


def entries(*watched):
    return [
        {"model": "tiny", "group": "stable", "workers": ["stable"]},
        *({"model": "tiny", "group": name, "weight": 0, "shadow": 1, "workers": ["canary"]} for name in watched),
    ]


def writes(text_of, piece=3, before=None, amid=None):
    """A worker that writes text_of(body) to completions and chat, streamed in pieces. before, amid: called with the
    exchange, at the beginning and when half is written."""

    def script(ex):
        body = ex.json()
        text = text_of(body)
        chat = ex.path == CHAT
        if before:
            before(ex)
        if not body.get("stream"):
            choice = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
            ex.respond(body={"id": f"x{id(ex)}", "choices": [{"index": 0, **choice}]})
            return
        ex.start_stream()
        pieces = [text[i : i + piece] for i in range(0, len(text), piece)]
        for i, part in enumerate(pieces):
            if amid and i == len(pieces) // 2:
                amid(ex)
            ex.event({"choices": [{"index": 0, **({"delta": {"content": part}} if chat else {"text": part})}]})
        ex.event("[DONE]")
        ex.end_stream()

    return script


def question(number):
    return lambda body: SAME * 3 + str(body.get("messages") or body.get("prompt")) + str(number)


def pair(workers, kvway, one, other, config=None, watched=("next",)):
    stable, canary = workers(1, script=one), workers(1, script=other)
    return start(kvway, stable, canary, {"loops": 1, **(config or {})}, entries=entries(*watched))


def send(router, number=0, path=CHAT, **more):
    body = {"temperature": 0, **chat_body(f"hi {number}", **more)}
    if path == COMPLETIONS:
        body["prompt"] = body.pop("messages")[0]["content"]
    headers = [("x-request-id", f"r{number}"), ("content-type", "application/json")]
    return router.ask("POST", path, headers, json.dumps(body).encode())


def result(router, name, group="next", of="stable"):
    return router.metric("kvway_group_fidelity_total", model="tiny", group=group, of=of, result=name)


def ended(router, count, group="next"):
    """So many copies have ended, and nothing is kept."""
    until(lambda: router.metric("kvway_group_shadow_total", group=group) == count, 15, f"{count} copies ended")
    until(lambda: router.metric("kvway_shadow_bytes") == 0)
    router.wait_idle()


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("stream", [False, True])
def test_answers_are_compared(workers, kvway, path, stream):
    def other(body):
        text = question(1)(body)
        return text[:50] + "X" + text[51:] if "hi 3" in str(body) or "hi 5" in str(body) else text

    router = pair(workers, kvway, writes(question(1)), writes(other, piece=7))
    for number in range(8):
        assert send(router, number, path, stream=stream).status == 200
    ended(router, 8)
    assert (result(router, "equal"), result(router, "different")) == (6, 2)
    assert result(router, "unfinished") + result(router, "unread") == 0
    assert router.metric("kvway_group_fidelity_first_difference_characters_sum", group="next", of="stable") == 100
    characters = sum(len(question(1)(send_body(path, n))) for n in range(8))
    for answer in ("client", "copy"):
        assert router.metric("kvway_group_fidelity_characters_total", group="next", answer=answer) == characters
    # What the client asks to be drawn is another each time.
    for temperature in (0.7, None):
        assert send(router, 8, path, stream=stream, temperature=temperature).status == 200
    ended(router, 10)
    assert result(router, "equal") == 6


def send_body(path, number):
    body = chat_body(f"hi {number}")
    return {"prompt": body["messages"][0]["content"]} if path == COMPLETIONS else body


@pytest.mark.parametrize("first", ["client", "copy"])
@pytest.mark.parametrize("longer", ["client", "copy", None])
def test_whichever_is_ahead(workers, kvway, first, longer):
    """The one waits in the middle until all of the other is through, as far as the other goes."""
    through = threading.Event()

    def wait(ex):
        assert through.wait(10)

    texts = {side: SAME + ("more" if side == longer else "") for side in ("client", "copy")}
    scripts = {
        side: writes(lambda body, side=side: texts[side], amid=None if side == first else wait) for side in texts
    }
    router = pair(workers, kvway, scripts["client"], scripts["copy"])
    got = []
    client = threading.Thread(target=lambda: got.append(send(router, stream=True)))
    client.start()
    if first == "copy":
        until(lambda: router.metric("kvway_group_shadow_total", result="ok") == 1)
    else:
        client.join()
        until(lambda: router.metric("kvway_shadow_requests") == 1 and router.metric("kvway_exchanges") <= 1)
        assert got[0].status == 200  # whatever the copy does
    assert router.metric("kvway_shadow_bytes") > 0
    through.set()
    client.join()
    ended(router, 1)
    assert result(router, "equal" if longer is None else "different") == 1
    if longer:
        sums = router.metric("kvway_group_fidelity_first_difference_characters_sum")
        assert sums == len(SAME)


def test_what_has_not_ended_is_not_compared(workers, kvway):
    fails = {"hi 0": lambda ex: ex.respond(500, body={}), "hi 1": lambda ex: ex.reset()}
    error = {"hi 2": lambda ex: ex.event({"error": {"message": "it broke", "code": 500}})}

    def faulty(ex):
        for word, fault in fails.items():
            if word in str(ex.json()):
                fault(ex)
                return
        amid = next((fault for word, fault in error.items() if word in str(ex.json())), None)
        writes(question(1), amid=amid)(ex)

    router = pair(workers, kvway, writes(question(1)), faulty)
    for number in range(4):
        assert send(router, number, stream=True).status == 200
    ended(router, 4)
    assert (result(router, "unfinished"), result(router, "equal")) == (3, 1)


def test_a_client_that_left_had_no_answer(workers, kvway):
    gone = threading.Event()

    def wait(ex):
        gone.wait(10)

    router = pair(workers, kvway, writes(question(1), amid=wait), writes(question(1)))
    with Client(router.port) as client:
        client.send_request("POST", CHAT, body={"temperature": 0, **chat_body("hi", stream=True)})
        until(lambda: router.metric("kvway_group_shadow_total", result="ok") == 1)
        client.reset()
    until(lambda: result(router, "unfinished") == 1)
    gone.set()
    ended(router, 1)


@pytest.mark.parametrize("why", ["long", "memory", "choices", "textless"])
def test_what_cannot_be_compared(workers, kvway, why):
    copied = threading.Event()
    length = {"long": 100_000, "memory": 20_000, "textless": 0}.get(why, 30)

    def answer(ex):
        if why == "choices":
            ex.json()
            ex.respond(body={"choices": [{"index": i, "message": {"content": "a"}} for i in range(2)]})
        else:
            writes(lambda body: "a" * length, piece=1000)(ex)

    def late(ex):
        copied.wait(10)
        answer(ex)

    memory = {"groups.shadow_memory": "8KiB"} if why == "memory" else {}
    router = pair(workers, kvway, late, answer, memory)
    client = threading.Thread(target=send, args=(router,))
    client.start()
    until(lambda: router.metric("kvway_group_shadow_total", result="ok") == 1)
    copied.set()
    client.join()
    ended(router, 1)
    assert result(router, "unread") == 1 and result(router, "equal") + result(router, "different") == 0


def test_the_answer_of_a_second_attempt_is_not_compared(workers, kvway):
    failed = []

    def fails_once(ex):
        ex.json()
        if not failed:
            failed.append(ex)
            ex.respond(503, body={})
            return
        writes(question(1))(ex)

    stable, canary = workers(2, script=fails_once), workers(1, script=writes(question(1)))
    router = start(kvway, stable, canary, {"loops": 1}, entries=entries("next"))
    assert send(router).status == 200
    ended(router, 1)
    assert result(router, "unfinished") == 1


def test_each_pair_is_counted(workers, kvway):
    """A group of the client's own workers says how much they differ from themselves."""
    count = []

    def restless(body):
        count.append(body)
        return SAME + str(len(count) % 2)

    stable, canary = workers(1, script=writes(restless)), workers(1, script=writes(lambda body: "else"))
    groups = entries("next")
    groups.append({"model": "tiny", "group": "again", "weight": 0, "shadow": 1, "workers": ["stable"]})
    router = start(kvway, stable, canary, {"loops": 1}, entries=groups)
    for number in range(4):
        assert send(router, number).status == 200
        ended(router, number + 1, "again")
        ended(router, number + 1)
    assert result(router, "different", "again") == result(router, "different") == 4
    again = router.metric("kvway_group_fidelity_first_difference_characters_sum", group="again", of="stable")
    assert again == 4 * len(SAME)
    assert router.metric("kvway_group_fidelity_first_difference_characters_sum", group="next") == 0


def test_texts_are_in_no_log(workers, kvway):
    router = pair(workers, kvway, writes(lambda body: "a-secret"), writes(lambda body: "another-secret"),
                  {"log.level": "debug"})
    assert send(router).status == 200
    ended(router, 1)
    assert result(router, "different") == 1
    assert "secret" not in router.log()


def test_an_experiment_with_speculative_decoding(kvsim, kvway):
    """deploy/README.md, "Speculative decoding, on and off": two groups, one that drafts and drifts."""
    plain, eagle = kvsim(1), kvsim(1, "--drafts", "3:0.6", "--drift", "0.5")
    listed = [{"model": "tiny", "group": n, "weight": 1, "workers": [g], **more}
              for n, g, more in (("plain", "stable", {}), ("eagle", "canary", {"shadow": 1}))]
    router = start(kvway, plain, eagle, {"health.metrics_interval": "100ms", "groups.sticky": "request"}, entries=listed)
    options = {"stream": True, "max_tokens": 60, "stream_options": {"include_usage": True}}
    for number in range(80):
        assert send(router, number, **options).status == 200
    copies = router.metric("kvway_group_chosen_total", group="plain")
    assert 25 <= copies <= 55
    ended(router, copies, "eagle")
    said = {}

    def looks():
        said.update(json.loads(command(router, "compare", "plain", "eagle", "--json")))
        return said["rows"]["draft_acceptance"]["values"][1] is not None

    until(looks, 10, "drafts known")
    fidelity = said["fidelity"]
    assert fidelity["compared"] == copies
    assert 0.25 < fidelity["equal_share"]["value"] < 0.75
    assert fidelity["equal_share"]["low"] < fidelity["equal_share"]["value"] < fidelity["equal_share"]["high"]
    assert 0 < fidelity["first_difference_characters"]["value"] < 32 * 4
    assert fidelity["characters_per_answer"] == [240, 240]
    assert said["rows"]["draft_acceptance"]["values"][0] is None
    assert said["rows"]["draft_acceptance"]["values"][1]["value"] == pytest.approx(0.6, abs=0.02)
    assert [v["samples"] for v in said["rows"]["output_token_seconds"]["values"]] == [copies, 80 - copies]
    table = command(router, "compare", "plain", "eagle")
    assert "equal answers, %" in table and "draft tokens accepted, %" in table
    later = json.loads(command(router, "compare", "plain", "eagle", "--interval", "100ms", "--json"))
    assert later["fidelity"] is None
    # Back, in one command.
    assert "weight 0" in command(router, "groups", "weight", "tiny", "plain=100", "eagle=0")
    before = router.metric("kvway_group_chosen_total", group="eagle")
    for number in range(100, 110):
        assert send(router, number, **options).status == 200
    assert router.metric("kvway_group_chosen_total", group="eagle") == before


def test_drafts_of_a_group_are_counted_over_a_restart_of_its_worker(workers, kvway):
    def drafted(count, accepted):
        return f"vllm:spec_decode_num_draft_tokens_total {count}\nvllm:spec_decode_num_accepted_tokens_total {accepted}\n"

    def counted():
        return [router.metric("kvway_group_draft_tokens_total", group="next", kind=k) for k in ("drafted", "accepted")]

    stable, canary = workers(1), workers(1)
    canary[0].metrics = drafted(1000, 900)
    router = start(kvway, stable, canary, {"health.metrics_interval": "100ms"}, entries=entries("next"))
    until(lambda: canary[0].probes.count("/metrics") >= 2)
    for now, sum_of in ((drafted(1050, 930), [50, 30]), (drafted(20, 5), [70, 35])):
        canary[0].metrics = now
        until(lambda expected=sum_of: counted() == expected, 10, f"counted {sum_of}")
    assert router.metric("kvway_group_draft_tokens_total", group="stable") == 0
