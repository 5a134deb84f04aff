"""Several redis-servers: a cluster, a master with Sentinels; and the load that checks them.

Ports are kept as rig.wait.Port keeps them. Nothing is saved, and all of it dies with the test.
"""

import json
import signal
import subprocess
import threading

from rig.redis import SERVER, Redis, RedisError, RedisServer
from rig.router import BUILD, Process, with_parent
from rig.wait import PATIENCE, Port, until

DRIVE = BUILD / "tests" / "integration" / "redis-drive"
SLOTS = 16384


def flags(options):
    """cluster_enabled="yes" -> --cluster-enabled yes"""
    words = []
    for key, value in options.items():
        words.append("--" + key.replace("_", "-"))
        words += value if isinstance(value, (list, tuple)) else [value]
    return words


class Server(RedisServer):
    """A redis-server with a folder of its own; one command for each connection."""

    def __init__(self, directory, name="redis", port=None, **options):
        folder = directory / name
        folder.mkdir(exist_ok=True)
        super().__init__(folder, *flags(options), port=port, name=name)

    def call(self, *words):
        with self.connect() as redis:
            return redis.cmd(*words)

    def info(self, section, key):
        for line in self.call("INFO", section).decode().splitlines():
            if line.startswith(f"{key}:"):
                return line.split(":", 1)[1]
        return None

    def role(self):
        return self.call("ROLE")[0].decode()

    def stop(self):
        """Whatever it does: ended, and its ports are free."""
        if self.alive():
            self.signal(signal.SIGCONT)
        super().stop()


class ClusterNode(Server):
    """A server in cluster mode; its bus has a port of its own."""

    def __init__(self, directory, name, timeout_ms=1500, **options):
        self.bus_kept = Port()
        super().__init__(
            directory,
            name,
            cluster_enabled="yes",
            cluster_config_file="nodes.conf",
            cluster_node_timeout=timeout_ms,
            cluster_port=self.bus_kept.number,
            cluster_allow_replica_migration="no",  # a master without slots stays one
            repl_diskless_sync="yes",
            repl_diskless_sync_delay=0,
            cluster_replica_validity_factor=0,
            **options,
        )

    def id(self):
        return self.call("CLUSTER", "MYID").decode()

    def meet(self, other):
        self.call("CLUSTER", "MEET", "127.0.0.1", other.port, other.bus_kept.number)

    def state(self, key):
        for line in self.call("CLUSTER", "INFO").decode().splitlines():
            if line.startswith(f"{key}:"):
                return line.split(":", 1)[1]
        return None

    def owners(self):
        """{port of a master: how many slots it owns}, as this server sees it."""
        found = {}
        for first, last, master, *_ in self.call("CLUSTER", "SLOTS"):
            found[master[1]] = found.get(master[1], 0) + last - first + 1
        return found

    def owner_of(self, slot):
        """Port of the slot's master, as this server sees it."""
        for first, last, master, *_ in self.call("CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return master[1]
        return None

    def stop(self):
        super().stop()
        self.bus_kept.close()


class Cluster:
    """Masters that share the slots evenly, each with so many replicas."""

    def __init__(self, directory, masters=3, replicas=0, spare=0, each=(), **options):
        """each: further options of one server after the other."""
        self.nodes = []
        try:
            for i in range(masters * (1 + replicas) + spare):
                own = each[i] if i < len(each) else {}
                self.nodes.append(ClusterNode(directory, f"node{i}", **options, **own))
            self._join(masters, replicas)
        except BaseException:
            self.stop()
            raise

    def _join(self, masters, replicas):
        self.masters = self.nodes[:masters]
        self.replicas = self.nodes[masters : masters * (1 + replicas)]
        self.spares = self.nodes[masters * (1 + replicas) :]
        for i, node in enumerate(self.nodes):
            node.call("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
        for i, node in enumerate(self.masters):
            first, last = SLOTS * i // masters, SLOTS * (i + 1) // masters - 1
            node.call("CLUSTER", "ADDSLOTSRANGE", first, last)
        members = self.masters + self.replicas
        for node in members[1:]:
            self.nodes[0].meet(node)
        self.wait_known(members)
        for i, node in enumerate(self.replicas):
            node.call("CLUSTER", "REPLICATE", self.masters[i % masters].id())
        self.wait_ok(members)
        until(self._replicas_follow, 20, "replicas in step with their masters")

    @staticmethod
    def wait_known(nodes):
        known = str(len(nodes))
        until(
            lambda: all(n.state("cluster_known_nodes") == known for n in nodes),
            20,
            f"{known} nodes knowing each other",
        )

    @staticmethod
    def wait_ok(nodes):
        until(
            lambda: all(n.state("cluster_state") == "ok" for n in nodes), 20, "a cluster that is ok"
        )

    def _replicas_follow(self):
        seen = sum(len(row) - 3 for row in self.masters[0].call("CLUSTER", "SLOTS"))
        return seen == len(self.replicas) and all(
            node.info("replication", "master_link_status") == "up" for node in self.replicas
        )

    def join(self, node):
        """A spare one becomes a member, without slots."""
        self.nodes[0].meet(node)
        members = [n for n in self.masters + self.replicas + [node] if n.alive()]
        self.wait_known(members)
        self.wait_ok(members)
        self.masters.append(node)

    def url(self, scheme="redis-cluster", login=""):
        return f"{scheme}://{login}" + ",".join(f"127.0.0.1:{n.port}" for n in self.nodes)

    def move_slot(self, slot, source, target, pause=lambda: None):
        """As redis-cli --cluster reshard does it: key by key, the slot's owner changed at the end.
        pause() is called between keys."""
        target.call("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id())
        source.call("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id())
        connection = Redis(source.port)
        while keys := connection.cmd("CLUSTER", "GETKEYSINSLOT", slot, 10):
            for key in keys:
                connection.cmd("MIGRATE", "127.0.0.1", target.port, key, 0, 5000)
                pause()
        connection.close()
        for node in [target, source, *self.masters]:
            node.call("CLUSTER", "SETSLOT", slot, "NODE", target.id())

    def move_empty_slots(self, slots, source, target):
        """Slots without keys: only their owner changes."""
        name = target.id()
        for node in [target, source, *self.masters]:
            connection = Redis(node.port)
            for slot in slots:
                connection.cmd("CLUSTER", "SETSLOT", slot, "NODE", name)
            connection.close()

    def restart(self):
        """After the end of all of them."""
        for node in self.nodes:
            node.restart()
        self.wait_ok(self.nodes)

    def stop(self):
        for node in self.nodes:
            node.stop()


class Sentinel(Server):
    """One Sentinel that watches one master under the name `redismaster`."""

    def __init__(self, directory, name, master, quorum, extra=()):
        self.config = directory / f"{name}.conf"
        self.monitor = [
            f"sentinel monitor redismaster 127.0.0.1 {master.port} {quorum}",
            "sentinel down-after-milliseconds redismaster 1000",
            "sentinel failover-timeout redismaster 6000",
            *extra,
        ]
        super().__init__(directory, name)

    def start(self):
        """Sentinels keep what they know in their configuration."""
        self.starts += 1
        lines = [f"port {self.port}", "bind 127.0.0.1", f"dir {self.directory}", *self.monitor]
        self.config.write_text("\n".join(lines) + "\n")
        log = self.directory / f"{self.name}.{self.starts}.log"
        Process.__init__(self, [SERVER, self.config, "--sentinel"], log)
        until(self.up, 10, "a Sentinel up")

    def master_port(self):
        return int(self.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "redismaster")[1])

    def ready(self, others):
        """It knows the replica and all the other Sentinels."""
        try:
            rows = self.call("SENTINEL", "MASTER", "redismaster")
            fields = dict(zip(rows[::2], rows[1::2]))
            known = fields[b"num-slaves"], fields[b"num-other-sentinels"]
            return known == (b"1", b"%d" % others)
        except (OSError, RedisError):
            return False


class Watched:
    """A master, a replica, and Sentinels that watch them."""

    def __init__(self, directory, sentinels=3, **options):
        self.made = []
        try:
            self.master = self._add(Server(directory, "master", **options))
            self.replica = self._add(
                Server(
                    directory,
                    "replica",
                    replicaof=["127.0.0.1", self.master.port],
                    repl_diskless_sync="yes",
                    repl_diskless_sync_delay=0,
                    **options,
                )
            )
            until(
                lambda: self.replica.info("replication", "master_link_status") == "up",
                20,
                "the replica in step",
            )
            self.sentinels = []
            for i in range(sentinels):
                one = Sentinel(directory, f"sentinel{i}", self.master, sentinels // 2 + 1)
                self.sentinels.append(self._add(one))
            until(
                lambda: all(one.ready(sentinels - 1) for one in self.sentinels),
                30,
                "Sentinels knowing each other and the replica",
            )
        except BaseException:
            self.stop()
            raise

    def _add(self, server):
        self.made.append(server)
        return server

    def url(self, scheme="redis-sentinel"):
        return f"{scheme}://" + ",".join(f"127.0.0.1:{s.port}" for s in self.sentinels)

    def stop(self):
        for server in self.made:
            server.stop()


class Drive:
    """redis-drive: load whose every byte is checked. `now` is what it said last."""

    def __init__(self, url, log, **options):
        assert DRIVE.exists(), f"{DRIVE} is missing: build first, and set KVW_BUILD"
        argv = [DRIVE, "--url", url, "--service", "redismaster"]
        argv += ["--late-ms", str(int(3000 * PATIENCE))]  # a busy machine is no fault
        for key, value in options.items():
            argv += [f"--{key.replace('_', '-')}", str(value)]
        self.errors = open(log, "wb")
        self.log_path = log
        self.popen = subprocess.Popen(
            with_parent(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
        )
        self.now = None
        self.final = None
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.popen.stdout:
            said = json.loads(line)
            if said["final"]:
                self.final = said
            self.now = said

    def log(self):
        return self.log_path.read_text(errors="replace")

    def done(self):
        """Operations that went well."""
        now = self.now
        return 0 if now is None else now["stored"] + now["hits"]

    def failed(self):
        now = self.now
        return now["timeouts"] + now["unreachable"] + now["refused"] + now["other"]

    def wait(self, condition, seconds, what):
        """Until condition(of what it says now); it must not end meanwhile."""

        def true():
            assert self.popen.poll() is None, f"redis-drive ended: {self.now}\n{self.log()}"
            return self.now is not None and condition(self.now)

        try:
            until(true, seconds, what)
        except AssertionError as error:
            raise AssertionError(f"{error}; it said {self.now}\n{self.log()}") from error
        return self.now

    def wait_done(self, more, seconds=20):
        """So many more operations have gone well."""
        goal = self.done() + more
        return self.wait(lambda _: self.done() >= goal, seconds, f"{more} more operations")

    def wait_well(self, more, seconds=20):
        """So many more have gone well in a row: none failed in between."""
        at = [self.done(), self.failed() if self.now else 0]

        def well(_):
            if self.failed() != at[1]:
                at[0], at[1] = self.done(), self.failed()
            return self.done() >= at[0] + more

        return self.wait(well, seconds, f"{more} operations in a row")

    def stop(self, wrong=0):
        """Ends it; its last word, after the checks that always hold."""
        if self.final is None:
            if self.popen.poll() is None:
                self.popen.stdin.close()
            try:
                status = self.popen.wait(30 * PATIENCE)
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError(f"redis-drive does not end; it said {self.now}") from None
            self.reader.join(10)
            self.kill()
            log = self.log()
            assert "Sanitizer" not in log and "runtime error" not in log, log
            assert self.final is not None, f"redis-drive ended with {status}:\n{log}"
            assert self.final["wrong"] == wrong, self.final
            assert self.final["late"] == 0, self.final
            assert status == 0, (status, self.final, log)
            assert self.final["in_flight"] == 0, self.final
        return self.final

    def kill(self):
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait()
        if not self.popen.stdin.closed:
            self.popen.stdin.close()
        self.reader.join(10)
        self.popen.stdout.close()
        self.errors.close()
