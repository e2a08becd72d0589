"""The small models of record_deepspeed.py."""
import families

GPT2 = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 3, "n_embd": 48,
        "n_head": 4, "vocab_size": 101, "n_positions": 32, "activation_function": "gelu_new",
        "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "tie_word_embeddings": True,
        "use_cache": False}
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 4,
         "hidden_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2,
         "intermediate_size": 112, "vocab_size": 103, "max_position_embeddings": 32,
         "hidden_act": "silu", "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
         "attention_bias": False, "mlp_bias": False, "use_cache": False}
# Wide enough that some weights exceed stage 3's default persistence threshold of 1e5 elements.
GPT2_WIDE = dict(GPT2, n_embd=192)
LLAMA_WIDE = dict(LLAMA, hidden_size=320, intermediate_size=640)
# Odd sizes: neither the model nor its parameters divide by the number of ranks.  AutoTP's vocabulary does.
GPT2_ODD = dict(GPT2, n_layer=2, n_embd=25, n_head=5)
LLAMA_EVEN = dict(LLAMA, vocab_size=104)
# Sizes that ZeRO++'s quantisers take on four ranks.
GPT2_Q = dict(GPT2, n_layer=2, n_embd=64, vocab_size=104)
LLAMA_Q = dict(LLAMA, num_hidden_layers=2, hidden_size=64, vocab_size=104)
MODELS = {"gpt2q": GPT2_Q, "llamaq": LLAMA_Q, "llamaeven": LLAMA_EVEN, "gpt2": GPT2, "llama": LLAMA, "gpt2w": GPT2_WIDE, "llamaw": LLAMA_WIDE, "gpt2odd": GPT2_ODD,
          **families.FAMILIES}
