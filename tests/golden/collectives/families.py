"""The tiny models of families.json, one row each, for both recorders."""
import json
import os

import torch
import transformers

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "families.json")) as f:
    FAMILIES = json.load(f)


def load_classes(config):
    """Imports a family's modelling code, which takes seconds: called before the ranks are forked."""
    made = transformers.AutoConfig.for_model(config["model_type"])
    return type(made), transformers.MODEL_FOR_CAUSAL_LM_MAPPING[type(made)]


def build(config, attention="eager"):
    """The causal language model of a Hugging Face config, its tokens without special meaning."""
    config_class, model_class = load_classes(config)
    made = config_class(bos_token_id=None, eos_token_id=None, pad_token_id=None,
                        **{k: v for k, v in config.items() if k not in ("model_type", "architectures")})
    made.use_cache = False
    made._attn_implementation = attention
    return model_class(made)


def block_list(model):
    """The ModuleList of the transformer blocks."""
    return next(m for m in model.modules()
                if isinstance(m, torch.nn.ModuleList) and len(m) == model.config.num_hidden_layers)
