"""Models with a head of one number, their losses, and the plans that record_torch_memory.py --cases numbers records with them."""
import torch
import transformers
from torch import nn

QWEN = {"model_type": "qwen2", "hidden_size": 512, "num_hidden_layers": 4, "intermediate_size": 1408, "num_attention_heads": 8,
        "num_key_value_heads": 2, "vocab_size": 8192, "max_position_embeddings": 2048, "tie_word_embeddings": True}
LLAMA = {"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 4, "intermediate_size": 1408, "num_attention_heads": 8,
         "num_key_value_heads": 8, "vocab_size": 8192, "max_position_embeddings": 2048, "rms_norm_eps": 1e-05,
         "tie_word_embeddings": False, "attention_dropout": 0.0}
SCORE = {"architectures": ["ForSequenceClassification"], "num_labels": 1}
VALUE = {"architectures": ["ForTokenClassification"], "num_labels": 1}

NUMBERS = {"qwen-score": QWEN | SCORE, "qwen-value": QWEN | VALUE, "llama-score": LLAMA | SCORE, "llama-value": LLAMA | VALUE}


def class_of(config):
    """transformers' class by the end of the config's architecture."""
    name = (config.architectures or [""])[0]
    if name.endswith("ForSequenceClassification"):
        config.pad_token_id = 0
        return transformers.AutoModelForSequenceClassification
    if name.endswith("ForTokenClassification"):
        config.classifier_dropout = 0.0         # verl/workers/fsdp_workers.py
        return transformers.AutoModelForTokenClassification
    return transformers.AutoModelForCausalLM


def of_pairs(model, ids):
    """TRL 1.16, reward_trainer.py: compute_loss()."""
    chosen, rejected = torch.chunk(model(input_ids=ids, use_cache=False).logits.squeeze(-1), chunks=2)
    return -nn.functional.logsigmoid(chosen - rejected).mean()


def of_tokens(model, ids, returns, clip=0.5):
    """verl 0.7.0, core_algos.py: compute_value_loss(), of values that are all 0 and a mask of ones."""
    values = model(input_ids=ids, use_cache=False).logits.squeeze(-1)
    clipped = torch.clamp(values, -clip, clip)
    larger = torch.max((values - returns) ** 2, (clipped - returns) ** 2)
    return 0.5 * larger.mean()


def number_loss(model, ids, labels, config):
    score = config.architectures[0].endswith("ForSequenceClassification")
    return of_pairs(model, ids) if score else of_tokens(model, ids, labels.float())


def number_cases(plan_of):
    for model in NUMBERS:
        yield plan_of(model, world=4, precision="fp32", batch=4, seq=512)
        yield plan_of(model, world=4, precision="bf16", batch=4, seq=512)
        yield plan_of(model, "ddp", world=4, precision="bf16", batch=2, seq=512)
        yield plan_of(model, world=4, precision="bf16", batch=2, seq=512, recompute="full", accumulation=2)
