"""Loaded into the engines of `engine --only cost`: takes an engine's connector away and gives it back.

Two processes of the same program differ in speed by some percent, by where their memory came to lie, and a
neighbour on the machine changes that for minutes. What a connector costs is therefore seen in one and the
same engine, with and without it. KVWAY_BENCH_SWITCH names a file of two bytes, mapped by the benchmark as
well: the first says whether the next request is to have the connector ("1") or not ("0"), and is looked at when
a request comes to a scheduler that has no other. The second is the answer: what that request got.

Without it the scheduler's connector is None and the worker has no transfer group, as if none had been
configured: each of vLLM's branches for a connector goes the other way. What is left are the connector's
threads, asleep; the benchmark knows them by name.
"""

import mmap
import os

HAVE, NONE, UNKNOWN = b"1", b"0", b"?"
WANTED, GOT = 0, 1  # offsets of the two bytes in the file


def open_switch(path):
    """Maps the file into memory."""
    with open(path, "r+b") as file:
        return mmap.mmap(file.fileno(), 2)


def change_scheduler(switch, scheduler):
    """Wraps the scheduler's methods: a request that comes alone meets the connector, or none, as the file says then."""
    add = scheduler.add_request

    def add_request(self, request):
        if not hasattr(self, "bench_connector"):
            self.bench_connector = self.connector
        if not self.requests:
            self.connector = self.bench_connector if switch[WANTED:WANTED + 1] == HAVE else None
        switch[GOT:GOT + 1] = NONE if self.connector is None else HAVE
        add(self, request)

    scheduler.add_request = add_request


def change_worker(state, runner):
    """Wraps the worker's methods: steps that a connector has planned meet the connector, all others none."""
    run = runner.execute_model

    def execute_model(self, scheduler_output, *rest, **more):
        if not hasattr(self, "bench_agent"):
            self.bench_agent = state._KV_CONNECTOR_AGENT
        planned = scheduler_output.kv_connector_metadata is not None
        state._KV_CONNECTOR_AGENT = self.bench_agent if planned else None
        return run(self, scheduler_output, *rest, **more)

    runner.execute_model = execute_model


def install():
    """Called by vLLM in each of its processes, before anything is made."""
    path = os.environ.get("KVWAY_BENCH_SWITCH")
    if not path:
        return
    from vllm.distributed.kv_transfer import kv_transfer_state
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    change_scheduler(open_switch(path), Scheduler)
    change_worker(kv_transfer_state, GPUModelRunner)
