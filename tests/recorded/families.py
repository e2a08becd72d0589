"""A small model of each built-in family, as transformers has it: functions for dpx.record by the family's model_type, and their configs.

    families.llama()            what dpx.record records
    python families.py          the names;  python families.py llama: its config

Configs are those that PyTorch's trackers were recorded with (tests/golden/memory)."""
import json
import os
import sys

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "memory")


def without_dropout(config):
    return {k: without_dropout(v) if isinstance(v, dict) else 0.0 if "drop" in k and isinstance(v, float) else v for k, v in config.items()}


def configs():
    """Of each model_type the first, without dropout, which a plan of the family would have to say."""
    out = {}
    for name in ("torch_attention", "torch_experts", "torch_activations", "torch_units"):
        with open(os.path.join(GOLDEN, name + ".jsonl")) as f:
            models = json.loads(f.readline())["models"]
        for config in models.values():
            out.setdefault(config["model_type"], without_dropout(config))
    return out


def make(config):
    import transformers
    cfg = transformers.AutoConfig.for_model(**config)
    cfg.bos_token_id = cfg.eos_token_id = cfg.pad_token_id = None
    cfg.use_cache = False
    try:
        return transformers.AutoModelForCausalLM.from_config(cfg, attn_implementation="sdpa")
    except ValueError:          # attention with sinks, which it has in its own code alone
        return transformers.AutoModelForCausalLM.from_config(cfg, attn_implementation="eager")


def __getattr__(name):
    known = configs()
    if name not in known:
        raise AttributeError(name)
    return lambda: make(known[name])


if __name__ == "__main__":
    print(json.dumps(configs()[sys.argv[1]]) if len(sys.argv) > 1 else " ".join(configs()))
