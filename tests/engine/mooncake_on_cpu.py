"""A plugin of vLLM for engines with the MooncakeConnector where there is no GPU: its worker asks torch which device it has."""


def install():
    import torch
    from vllm.platforms import current_platform

    torch.accelerator.current_device_index = lambda: 0
    type(current_platform).set_device = classmethod(lambda cls, device: None)
