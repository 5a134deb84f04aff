"""Loaded into the engines of `engine`: their processes sleep instead of spinning while they wait.

vLLM's scheduler and its worker are processes that talk over shared memory, and a process that waits for the other
polls for a second before it sleeps. So while the worker computes, the scheduler burns nearly as much processor time
as the computation takes, and this time varies with what else the machine does: it would hide small differences. With
this plugin the scheduler sleeps until the worker notifies it, and processor time is work done. All engines of a
comparison load it, by vLLM's plugins; only their processor time changes.
"""

NAP_MS = 5  # a message without a call (vLLM sends a call per message, and loses some) waits this long


def install():
    """Called by vLLM in each of its processes, before the queues are made."""
    import time

    from vllm.distributed.device_communicators.shm_broadcast import SpinCondition

    sleep = SpinCondition.wait

    def wait(self, timeout_ms=None):
        if time.monotonic() > self.last_read + self.busy_loop_s:
            sleep(self, timeout_ms)
        elif self.local_notify_socket in dict(self.poller.poll(timeout=NAP_MS)):
            self.local_notify_socket.recv()

    SpinCondition.wait = wait
