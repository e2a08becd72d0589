"""The keys that transformers' config classes have, of the families that are read, as model/arch/hf_known_keys.h.

    pip download --no-deps transformers==4.57.1 -d OLD && (cd OLD && unzip -q transformers-*.whl)
    python make_config_keys.py OLD/transformers > ../../../model/arch/hf_known_keys.h

From the transformers that is installed: what a config of the family has (to_dict()), the names that its constructor takes, and
the aliases of attribute_map.  From the older one's sources, in which published configs were written: `self.KEY =` and
`kwargs.pop("KEY")` of configuration_utils.py and of each family's configuration file.  The last list is of keys of published
configs that no class has: what other trainers and remote code left in them, and which changes no tensor.
"""
import inspect
import os
import re
import sys

import transformers
from transformers import CONFIG_MAPPING

FAMILIES = """arcee bloom cohere cohere2 deepseek_v3 ernie4_5 exaone4 falcon gemma gemma2 gemma3_text glm glm4 gpt2 gpt_neox gpt_oss
gptj granite granitemoe hunyuan_v1_dense jais2 llama llama4_text ministral ministral3 mistral mixtral mpt nemotron nemotron_h olmo2 olmo3 olmoe opt phi
phi3 qwen2 qwen3 qwen3_moe seed_oss smollm3 stablelm starcoder2""".split()

PUBLISHED = """auto_map rotary attention_softmax_in_fp32 scale_attention_softmax_in_fp32 masked_softmax_fusion bias_dropout_fusion offset_alibi
n_ctx n_embed multi_query alibi seq_length skip_bias_add skip_bias_add_qkv activation_function_checkpointing prefix mlp_type norm_type
rope_pct rotary_pct ep_size seq_aux aux_loss_alpha moe_layer_freq scoring_func topk_method num_nextn_predict_layers
quantization_config compression_config use_mrope attn_implementation _attn_implementation_autoset cache_implementation
unsloth_fixed unsloth_version unsloth_tied_weights model_name tokenizer_class pretraining_tp transformers.js_config tokenizer_name init_device
verbose no_bias embedding_fraction learned_pos_emb logit_scale init_config attention_probs_dropout_prob rope_parameters
original_max_position_embeddings resid_pdrop embd_pdrop attn_pdrop gradient_checkpointing params license
experts_per_token initial_context_length output_past use_parallel_residual hidden_activation sliding_window_pattern torch_dtype dtype vision_config audio_config
attention_head_dim ssm_cfg mamba_conv_bias mamba_n_groups mamba_d_conv mamba_chunk_size mamba_expand mamba_num_groups mamba_state_dim
mamba_dt_min mamba_dt_max mamba_dt_limit mamba_dt_init_floor hybrid_override_pattern mtp_hybrid_override_pattern""".split()


NO_KEYS = {"self", "kwargs", "args", "config", "keys", "cache_dir", "force_download", "local_files_only", "token", "revision",
           "commit_message", "attribute_map", "repo_id", "subfolder", "use_auth_token", "proxies", "resume_download"}


def of_class(family):
    config = CONFIG_MAPPING[family]
    keys = set(config().to_dict()) | set(config.attribute_map)
    for klass in config.__mro__:
        keys |= set(getattr(klass, "__annotations__", {}))
        if "__init__" in vars(klass):
            keys |= set(inspect.signature(klass.__init__).parameters)
    return keys


def of_source(path):
    with open(path) as f:
        text = f.read()
    keys = set(re.findall(r"self\.([a-z_0-9]+)\s*[:=]", text)) | set(re.findall(r'kwargs\.pop\(\s*"([a-z_0-9]+)"', text))
    for args in re.findall(r"def __init__\(([^)]*)\)", text):
        keys |= set(re.findall(r"^\s*([a-z_0-9]+)\s*[:=,]", args, re.M))
    return keys


def main():
    old = sys.argv[1]
    keys = set(PUBLISHED) | of_source(os.path.join(old, "configuration_utils.py"))
    keys |= of_source(os.path.join(old, "generation", "configuration_utils.py"))
    for family in FAMILIES:
        keys |= of_class(family)
        folder = os.path.join(old, "models", {"gemma3_text": "gemma3", "llama4_text": "llama4"}.get(family, family))
        for name in os.listdir(folder) if os.path.isdir(folder) else []:
            if name.startswith("configuration_"):
                keys |= of_source(os.path.join(folder, name))
    keys = sorted(k for k in keys - NO_KEYS if not k.startswith("_") and re.fullmatch(r"[a-z0-9_.]+", k))
    print("/* hf_known_keys.h -- made by tests/golden/models/make_config_keys.py from transformers %s and 4.57.1: keys of its config\n"
          " * classes, and of published configs, in the order of strcmp(). */\n#ifndef DPX_HF_KNOWN_KEYS_H\n#define DPX_HF_KNOWN_KEYS_H\n\n"
          "static const char *const hf_known_keys[] = {" % transformers.__version__)
    line = ""
    for k in keys + [None]:
        text = '"%s",' % k if k else ""
        if k is None or len(line) + 1 + len(text) > 132:
            print(line)
            line = text
        else:
            line += (" " if line else "") + text
    print("};\n\n#endif")


if __name__ == "__main__":
    main()
