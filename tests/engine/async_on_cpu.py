"""A plugin of vLLM that leaves asynchronous scheduling on where there is no GPU; differential.py installs it.

vLLM 0.32 switches it off there ("not required on CPU"), yet its CPU worker computes right with it. Prints a line when
the scheduler first works."""


def install():
    from vllm.platforms.cpu import CpuPlatform
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler

    check, schedule = CpuPlatform.check_and_update_config.__func__, AsyncScheduler.schedule

    def checked(cls, config):
        check(cls, config)
        config.scheduler_config.async_scheduling = True

    def scheduled(self, *args, **kwargs):
        print("asynchronous scheduling on a CPU", flush=True)
        AsyncScheduler.schedule = schedule
        return schedule(self, *args, **kwargs)

    CpuPlatform.check_and_update_config = classmethod(checked)
    AsyncScheduler.schedule = scheduled
