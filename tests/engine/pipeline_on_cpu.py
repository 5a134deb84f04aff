"""A plugin of vLLM that lets a pipeline of several stages run without a GPU; differential.py installs it.

A stage of vLLM 0.32 makes room for what the stage before sends when it warms up, which its CPU worker leaves out for a
model that is not compiled; the first request then ends the engine."""


def install():
    from vllm.v1.worker.cpu_model_runner import CPUModelRunner

    inner = CPUModelRunner.sync_and_gather_intermediate_tensors

    def gather(self, *args, **kwargs):
        if self.intermediate_tensors is None:
            self.intermediate_tensors = self.model.make_empty_intermediate_tensors(
                batch_size=self.max_num_tokens, dtype=self.model_config.dtype, device=self.device)  # fmt: skip
        return inner(self, *args, **kwargs)

    CPUModelRunner.sync_and_gather_intermediate_tensors = gather
