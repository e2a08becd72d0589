"""Models whose config states another activation than its family's usual one, and the plans that record_torch_memory.py --cases activations
records with them."""

# A wide MLP, so that what it keeps shows; embeddings larger than a block, as in torch_memory.jsonl.
GPT2 = {"model_type": "gpt2", "n_layer": 3, "n_embd": 256, "n_head": 4, "n_inner": 2048, "n_positions": 1024, "vocab_size": 8192,
        "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0, "tie_word_embeddings": True}
SMALL = {"hidden_size": 256, "num_hidden_layers": 3, "intermediate_size": 2048, "num_attention_heads": 4, "vocab_size": 8192,
         "max_position_embeddings": 1024}

ACTIVATIONS = {"gpt2-" + name: dict(GPT2, activation_function=name)
               for name in ("gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu_python", "gelu_accurate", "gelu_python_tanh", "gelu")}
ACTIVATIONS.update({
    "phi-gelu_pytorch_tanh": dict(SMALL, model_type="phi", hidden_act="gelu_pytorch_tanh", tie_word_embeddings=False, hidden_size=512,
                                  intermediate_size=1536, num_attention_heads=8, num_hidden_layers=4),
    "neox-gelu_fast": dict(SMALL, model_type="gpt_neox", hidden_act="gelu_fast", tie_word_embeddings=False, rotary_pct=0.25,
                           hidden_dropout=0.0),
    "starcoder2-gelu_new": dict(SMALL, model_type="starcoder2", hidden_act="gelu_new", num_key_value_heads=2, tie_word_embeddings=True,
                                residual_dropout=0.0, embedding_dropout=0.0),
})


def activation_cases(plan_of):
    for model in ACTIVATIONS:
        yield plan_of(model, world=4, precision="fp32", batch=8, seq=256)
        yield plan_of(model, world=4, precision="bf16", batch=8, seq=256)
        yield plan_of(model, "ddp", world=4, precision="bf16", batch=8, seq=256)
        yield plan_of(model, world=4, precision="bf16", batch=8, seq=256, recompute="full")
