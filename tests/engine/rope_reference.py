#!/usr/bin/env python3
"""rope_reference.py - writes tests/unit/cache/fragments/rope_reference.h from vLLM's own rotary embeddings.

To be run by the Python of an environment that has vLLM. Each case is a config.json with a key of one head as vLLM
turns it at two positions; the unit test moves the first to the place of the second. Of latent keys (MLA) it is the vector
that vLLM caches: as models/deepseek_v2.py makes its rotary embedding, and concat_and_cache_mla puts the key at the end.
"""

import json
import pathlib

import torch
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.model_executor.layers.rotary_embedding import get_rope

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}
# factors of cosine and sine are not 1: a moved key must not get them twice
DEEPSEEK = {"factor": 40.0, "original_max_position_embeddings": 4096, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0,
            "mscale_all_dim": 0.0}
KIMI = {"factor": 32.0, "original_max_position_embeddings": 4096, "beta_fast": 1.0, "beta_slow": 1.0, "mscale": 0.707,
        "mscale_all_dim": 1.0}
LATENT = {"q_lora_rank": 24, "kv_lora_rank": 24, "qk_rope_head_dim": 32, "qk_nope_head_dim": 16, "v_head_dim": 16,
          "hidden_size": 128, "num_attention_heads": 2}
# name: (config.json, head, vLLM's rope_parameters, halves)
CASES = {
    "plain": ({"model_type": "llama", "hidden_size": 128, "num_attention_heads": 2}, 64, {}, True),
    "theta": ({"model_type": "qwen3", "head_dim": 32, "rope_theta": 1000000.0}, 32, {"rope_theta": 1e6}, True),
    "linear": ({"model_type": "llama", "head_dim": 32, "rope_theta": 10000.0,
                "rope_scaling": {"type": "linear", "factor": 4.0}}, 32, {"rope_type": "linear", "factor": 4.0}, True),
    "ntk": ({"model_type": "llama", "head_dim": 32, "rope_scaling": {"type": "ntk", "factor": 4.0}}, 32,
            {"rope_type": "ntk", "factor": 4.0}, True),
    "yarn": ({"model_type": "qwen2", "head_dim": 64, "rope_theta": 1e6, "rope_scaling": YARN}, 64,
             {"rope_theta": 1e6, **YARN}, True),
    "yarn, not truncated": ({"model_type": "gpt_oss", "head_dim": 64,
                             "rope_parameters": {"rope_theta": 150000.0, "beta_fast": 32.0, "beta_slow": 1.0,
                                                 "truncate": False, **YARN}}, 64,
                            {"rope_theta": 150000.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False, **YARN},
                            True),
    "llama3": ({"model_type": "llama", "head_dim": 64, "rope_theta": 500000.0, "rope_scaling": LLAMA3}, 64,
               {"rope_theta": 500000.0, **LLAMA3}, True),
    "partial": ({"model_type": "gpt_neox", "hidden_size": 128, "num_attention_heads": 2, "rotary_pct": 0.25,
                 "rotary_emb_base": 10000}, 64, {"partial_rotary_factor": 0.25}, True),
    "pairs": ({"model_type": "cohere", "head_dim": 32, "rope_theta": 75000.0}, 32, {"rope_theta": 75000.0}, False),
    "partial pairs": ({"model_type": "glm4", "head_dim": 32, "partial_rotary_factor": 0.5, "rope_theta": 10000.0}, 32,
                      {"partial_rotary_factor": 0.5}, False),
    "gptj": ({"model_type": "gptj", "n_embd": 64, "n_head": 2, "rotary_dim": 16}, 32, {"rope_dim": 16}, False),
    "latent": ({"model_type": "deepseek_v3", "rope_theta": 10000, "rope_interleave": True,
                "rope_scaling": {"type": "yarn", **DEEPSEEK}, **LATENT}, 56, {"rope_type": "deepseek_yarn", **DEEPSEEK},
               False),
    "latent, as the engine has it": (
        {"model_type": "kimi_k2", "rope_parameters": {"rope_type": "deepseek_yarn", "rope_theta": 50000.0, **KIMI}, **LATENT},
        56, {"rope_type": "deepseek_yarn", "rope_theta": 50000.0, **KIMI}, False),
    "latent, plain": ({"model_type": "deepseek_v2", **LATENT, "q_lora_rank": None}, 56, {}, False),
}
POSITIONS = (37, 1529)
MAX = 8192
OUT = pathlib.Path(__file__).resolve().parents[1] / "unit/cache/fragments/rope_reference.h"


def numbers(values):
    """The values as C has them, some a line."""
    words = [f"{v:.9g}" for v in values]
    words = [(w if set(w) & set(".en") else w + ".0") + "F" for w in words]
    return ",\n\t\t\t".join(", ".join(words[i:i + 8]) for i in range(0, len(words), 8))


def main():
    """Writes the header."""
    torch.manual_seed(1)
    parts = []
    with set_current_vllm_config(VllmConfig()):
        for name, (config, head, parameters, halves) in CASES.items():
            key, latent = torch.randn(1, head), config.get("kv_lora_rank", 0)
            rope = get_rope(head - latent, MAX, halves, {"rope_theta": 10000, "rope_type": "default", **parameters},
                            dtype=torch.float32)
            turned = []
            for position in POSITIONS:
                _, at = rope.forward_native(
                    torch.tensor([position]), torch.zeros(1, head - latent), key[:, latent:].clone())
                turned.append(torch.cat([key[0, :latent], at.flatten()]).tolist())
            text = json.dumps(config).replace('"', '\\"')
            parts.append(f'\t{{"{name}", "{text}", {head},\n\t\t{{{numbers(turned[0])}}},\n'
                         f'\t\t{{{numbers(turned[1])}}}}},\n')
    OUT.write_text(f"""/*
 * rope_reference.h - keys as vLLM turns them: written by tests/engine/rope_reference.py, not by hand.
 */
#ifndef TESTS_ROPE_REFERENCE_H
#define TESTS_ROPE_REFERENCE_H

#define REFERENCE_FROM {POSITIONS[0]}
#define REFERENCE_TO   {POSITIONS[1]}

static const struct {{
	const char *name, *config;
	unsigned int head;
	float from[64], to[64]; /* the same key at each position */
}} reference[] = {{
{"".join(parts)}}};

#endif
""")
    print(f"{OUT}: {len(CASES)} cases")


if __name__ == "__main__":
    main()
