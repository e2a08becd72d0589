"""Which weights axolotl's unfrozen_parameters leave to train: its own freeze_layers_except() on transformers' models.

    python record_unfrozen.py AXOLOTL > unfrozen.jsonl

AXOLOTL is a checkout of axolotl's repository; of src/axolotl/utils/freeze.py all runs but its logging."""
import json
import subprocess
import sys
import types

import torch
import transformers
from peft import LoraConfig, get_peft_model

LLAMA = dict(model_type="llama", hidden_size=64, intermediate_size=128, num_hidden_layers=12, num_attention_heads=4, num_key_value_heads=2,
             vocab_size=512, max_position_embeddings=512, tie_word_embeddings=False)
CASES = (
    (None, ["^lm_head.weight$", "^model.embed_tokens.weight$", "model.layers.[0-9]+.self_attn"]),
    (None, ["^model.embed_tokens.weight$[:32]", "model.layers.[0-9]+.mlp.down_proj.[a-z]+$"]),
    (None, ["lm_head.*", "model.*"]),
    (None, ["model.layers.1[0-1]+.mlp"]),
    (None, ["model.layers.[0-7]."]),
    (None, ["layers.[0-9]+.mlp"]),
    (None, ["model\\.layers\\.[0-9]+"]),
    (None, ["model.layers.[\\d]+.(input|post_attention)_layernorm", "model.norm[3]", "lm_head"]),
    (None, ["model.layers.+.self_attn.q_proj", "lm_head[:]"]),
    (None, ["model.language_model.*"]),
    (["q_proj", "v_proj"], ["^model.language_model.*", "^lm_head.*"]),
    (["q_proj", "v_proj"], ["base_model.model.+.lora_[AB]"]),
    (["q_proj", "v_proj"], ["base_model.model.model.layers.[0-9]+.self_attn.q_proj.lora_"]),
)


def freeze(where):
    """Its logging and its rank are left out."""
    for name in ("axolotl", "axolotl.utils", "axolotl.utils.distributed", "axolotl.utils.logging"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["axolotl.utils.distributed"].is_main_process = lambda: False
    sys.modules["axolotl.utils.logging"].get_logger = lambda name: None
    module = types.ModuleType("freeze")
    exec(compile(open(where + "/src/axolotl/utils/freeze.py").read(), "freeze.py", "exec"), module.__dict__)
    return module.freeze_layers_except


def trains(freeze_layers_except, targets, patterns):
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**LLAMA))
        if targets:
            model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", r=4, target_modules=targets))
    freeze_layers_except(model, patterns)
    return [name for name, p in model.named_parameters() if p.requires_grad]


if __name__ == "__main__":
    commit = subprocess.run(["git", "-C", sys.argv[1], "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
    print(json.dumps({"axolotl": commit or sys.argv[2], "transformers": transformers.__version__, "model": LLAMA}))
    of = freeze(sys.argv[1])
    for targets, patterns in CASES:
        print(json.dumps({"targets": targets, "patterns": patterns, "trains": trains(of, targets, patterns)}))
