#!/usr/bin/env python3
"""Write a LoRA adapter with random weights for the model of mk_tiny_model.py.

    mk_tiny_adapter.py MODEL OUTDIR [--seed N] [--rank N]

Its weights are large enough that answers differ from the model's own and from those of an adapter of another
seed. Needs the packages `safetensors` and `torch` (vLLM's environment has both).
"""

import argparse
import json
import pathlib

import torch
from safetensors.torch import save_file

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj")


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("model", type=pathlib.Path)
    args.add_argument("outdir", type=pathlib.Path)
    args.add_argument("--seed", type=int, default=0)
    args.add_argument("--rank", type=int, default=8)
    args = args.parse_args()

    config, layers = json.loads((args.model / "config.json").read_text()), "model.layers"
    if "text_config" in config:
        config, layers = config["text_config"], "model.language_model.layers"
    hidden, head = config["hidden_size"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    sizes = {
        "q_proj": (hidden, queries), "k_proj": (hidden, keys), "v_proj": (hidden, keys), "o_proj": (queries, hidden),
    }  # fmt: skip
    torch.manual_seed(args.seed)
    tensors = {}
    for layer in range(config["num_hidden_layers"]):
        for name in TARGETS:
            taken, given = sizes[name]
            at = f"base_model.model.{layers}.{layer}.self_attn.{name}"
            tensors[f"{at}.lora_A.weight"] = (torch.randn(args.rank, taken) * 0.1).to(torch.bfloat16)
            tensors[f"{at}.lora_B.weight"] = (torch.randn(given, args.rank) * 0.3).to(torch.bfloat16)
    args.outdir.mkdir(parents=True, exist_ok=True)
    save_file(tensors, args.outdir / "adapter_model.safetensors")
    about = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": args.rank, "lora_alpha": args.rank, "lora_dropout": 0.0,
        "bias": "none", "target_modules": list(TARGETS), "base_model_name_or_path": "tiny", "use_dora": False,
        "use_rslora": False, "modules_to_save": None, "fan_in_fan_out": False, "inference_mode": True,
    }  # fmt: skip
    (args.outdir / "adapter_config.json").write_text(json.dumps(about))


if __name__ == "__main__":
    main()
