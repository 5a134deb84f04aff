"""Several replicas of kvway that share their load through Redis."""

import os
import threading
import time

from rig.client import CHAT, Client, chat_body
from rig.wait import until
from rig.wire import Closed
from rig.worker import answer

SHARE = {"replicas.interval": "20ms", "replicas.life": "1s"}


def replicas(kvway, workers, redis, count, **more):
    config = {"replicas.redis": redis.url, **SHARE, **more}
    return [kvway(workers, config) for _ in range(count)]


def peers(router):
    return router.metric("kvway_replicas_peers")


def degraded(router):
    return router.metric("kvway_replicas_degraded")


def killed(router):
    router.kill()
    router.stop = lambda: None  # how it ended is not its fault


def settle(routers, count=None):
    count = len(routers) - 1 if count is None else count
    until(lambda: all(degraded(r) == 0 and peers(r) == count for r in routers), 20)


class Flood:
    """Clients that ask several routers until they are stopped: what came back, by status."""

    def __init__(self, routers, clients=4):
        self.statuses, self.failures, self.lock, self.ending = {}, [], threading.Lock(), threading.Event()
        self.threads = [threading.Thread(target=self.run, args=(r,)) for r in routers for _ in range(clients)]
        for thread in self.threads:
            thread.start()

    def run(self, router):
        with Client(router.port) as client:
            while not self.ending.is_set():
                try:
                    status = client.ask("POST", CHAT, (), chat_body()).status
                except (OSError, Closed) as error:
                    with self.lock:
                        self.failures.append(error)
                    return
                with self.lock:
                    self.statuses[status] = self.statuses.get(status, 0) + 1

    def count(self):
        with self.lock:
            return sum(self.statuses.values())

    def more(self, n=40):
        """Until so many more have been answered."""
        goal = self.count() + n
        until(lambda: self.failures or self.count() >= goal, 30)

    def stop(self):
        self.ending.set()
        for thread in self.threads:
            thread.join(30)
        assert not self.failures, self.failures
        assert set(self.statuses) == {200}, self.statuses


class Balanced(Flood):
    """The same behind a load balancer: clients of a replica that is gone go on with the next one."""

    def __init__(self, routers, clients=4):
        self.routers, self.gone, self.moved = routers, [], 0
        super().__init__(routers, clients)

    def run(self, router):
        super().run(router)
        if router in self.gone:
            with self.lock:
                self.failures.pop()  # what was on its way when it died
                self.moved += 1
            self.run(next(r for r in self.routers if r not in self.gone))


def test_replicas_hear_each_other_and_forget_the_dead(kvway, workers, redis):
    routers = replicas(kvway, workers(2), redis, 3)
    settle(routers)
    assert all(r.metric("kvway_replicas_age_seconds") < 1 for r in routers)
    assert routers[0].ask("GET", "/health").json()["replicas"] == 2
    killed(routers[2])
    settle(routers[:2], 1)
    with redis.connect() as store:
        until(lambda: store.cmd("HLEN", "{kvway:default}:load") == 2, 20)


def test_a_worker_that_another_replica_keeps_busy_is_passed_over(kvway, workers, redis):
    pair = workers(2)
    one, two = replicas(kvway, pair, redis, 2)
    settle([one, two])
    release, begun = threading.Event(), threading.Event()

    def hang(exchange):
        exchange.read_body()
        if len(exchange.body) > 100_000:
            begun.set()
            release.wait(60)
        answer(exchange)

    for worker in pair:
        worker.script = hang
    long = threading.Thread(target=lambda: one.ask("POST", CHAT, (), chat_body("x y " * 100_000, stream=True)))
    long.start()
    assert begun.wait(20)
    (busy,) = [w for w in pair if w.requests]
    (idle,) = [w for w in pair if not w.requests]
    until(lambda: two.metric("kvway_worker_queue_seconds", worker=busy.url) > 0, 20)
    for i in range(8):  # alone it would send about half of these to the busy one
        assert two.ask("POST", CHAT, (), chat_body(f"{i} hello " * 50)).status == 200
    release.set()
    long.join()
    assert len(idle.requests) == 8, (len(idle.requests), len(busy.requests))
    until(lambda: two.metric("kvway_worker_queue_seconds", worker=busy.url) == 0, 20)


def test_groups_do_not_hear_each_other(kvway, workers, redis):
    (worker,) = workers(1)
    one = kvway([worker], {"replicas.redis": redis.url, **SHARE})
    other = kvway([worker], {"replicas.redis": redis.url, "replicas.group": "other", **SHARE})
    settle([one], 0)
    settle([other], 0)
    with redis.connect() as store:
        until(lambda: store.cmd("HLEN", "{kvway:default}:load") == 1)
        assert store.cmd("HLEN", "{kvway:other}:load") == 1


def test_redis_dies_and_comes_back_and_no_request_is_lost(kvway, workers, redis):
    routers = replicas(kvway, workers(2), redis, 3)
    settle(routers)
    flood = Flood(routers)
    flood.more()
    redis.kill()
    until(lambda: all(degraded(r) == 1 and peers(r) == 0 for r in routers), 20)
    assert routers[0].ask("GET", "/health").json()["shared_load"] == "degraded"
    flood.more()
    redis.start()
    settle(routers)
    flood.more()
    flood.stop()


def test_a_replica_is_killed_and_the_others_lose_no_request(kvway, workers, redis):
    routers = replicas(kvway, workers(2), redis, 3)
    settle(routers)
    flood = Flood(routers[:2])
    flood.more()
    killed(routers[2])
    settle(routers[:2], 1)
    flood.more()
    flood.stop()


def test_redis_and_a_replica_die_before_simulated_workers(kvway, kvsim, redis):
    """A minute of it with KVW_LONG: Redis dies again and again."""
    routers = replicas(kvway, kvsim(8), redis, 4)
    settle(routers)
    flood = Balanced(routers, 2)
    flood.more()
    ends = time.monotonic() + (60 if os.environ.get("KVW_LONG") else 0)
    while True:
        redis.kill()
        until(lambda: all(degraded(r) == 1 for r in routers), 20)
        flood.more()
        redis.start()
        settle(routers)
        flood.more()
        if time.monotonic() >= ends:
            break
    flood.gone.append(routers[3])
    killed(routers[3])
    settle(routers[:3], 2)
    until(lambda: flood.moved == 2, 20, "clients of the killed one going elsewhere")
    flood.more()
    flood.stop()


def test_a_replica_that_stops_leaves_nothing_in_redis(kvway, workers, redis):
    one, two = replicas(kvway, workers(1), redis, 2, **{"replicas.life": "1m"})
    settle([one, two])
    one.stop()
    one.stop = lambda: None
    with redis.connect() as store:
        assert store.cmd("HLEN", "{kvway:default}:load") == 1
        assert store.cmd("ZCARD", "{kvway:default}:seen") == 1


def test_foreign_words_in_redis_do_no_harm(kvway, workers, redis):
    (router,) = replicas(kvway, workers(1), redis, 1)
    settle([router])
    with redis.connect() as store:

        def bad():
            store.cmd("ZADD", "{kvway:default}:seen", 9e15, "liar")
            store.cmd("HSET", "{kvway:default}:load", "liar", b"kvL\x01" + b"\xff" * 400)
            return router.metric("kvway_replicas_messages_total", what="bad")

        until(lambda: bad() > 0, 20)
    assert router.ask("POST", CHAT, (), chat_body()).status == 200
    assert peers(router) == 0


def test_what_another_program_wrote_is_taken_away(kvway, workers, redis):
    """More than fits into a reply, with and without a date of its own."""
    routers = replicas(kvway, workers(1), redis, 2)
    settle(routers)
    load, seen, much = "{kvway:default}:load", "{kvway:default}:seen", b"x" * (5 << 20)
    with redis.connect() as store:
        store.cmd("HSET", load, "undated", b"x", "long", much)
        until(lambda: store.cmd("HLEN", load) == 2, 20, "fields that no replica wrote are gone")
        store.cmd("ZADD", seen, 9e15, "dated")
        store.cmd("HSET", load, "dated", much)
        until(lambda: store.cmd("HLEN", load) == 2, 20, "a message that is none is gone")
    settle(routers)


def test_a_key_of_another_type_is_named_in_the_log(kvway, workers, redis):
    with redis.connect() as store:
        store.cmd("SET", "{kvway:default}:load", "another program's")
        (router,) = replicas(kvway, workers(1), redis, 1)
        until(lambda: "WRONGTYPE" in router.log(), 20, "the reason in the log")
        assert degraded(router) == 1 and router.log().count("redis refuses it") == 1
        assert router.ask("POST", CHAT, (), chat_body()).status == 200
        store.cmd("DEL", "{kvway:default}:load")
        settle([router])


def test_one_connection_for_rates_and_load(kvway, workers, redis):
    (worker,) = workers(1)
    router = kvway([worker], {"replicas.redis": redis.url, "rate_sharing.redis": redis.url, **SHARE})
    settle([router], 0)
    with redis.connect() as store:
        clients = store.cmd("CLIENT", "LIST").decode().splitlines()
    assert len(clients) == 2, clients  # this test's own is the other one
