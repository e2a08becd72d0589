#!/usr/bin/env python3
"""What litgpt's LoRA keeps for backward beside what transformers' and PEFT's keeps: tests/accuracy/memory.jsonl takes "beside" from here.

    git clone https://github.com/Lightning-AI/litgpt && git -C litgpt checkout 8641822
    tests/accuracy/litgpt_saved.py litgpt        needs torch, transformers and peft; no GPU

Counts the storages that autograd saves, parameters and rotary tables aside: what is saved twice counts once.  bf16 throughout, as under
--precision bf16-true; Fabric's HalfPrecision.convert_output() hands the logits on in fp32.
"""
import sys, types
import torch
import transformers
from peft import LoraConfig, get_peft_model

LORA = dict(r=8, alpha=16, dropout=0.05, to_query=True, to_value=True)     # finetune/lora.py
TOKENS = 256


def stub(name, **has):
    m = types.ModuleType(name)
    m.__dict__.update(has)
    m.__path__ = []
    sys.modules[name] = m


sys.path.insert(0, sys.argv[1])
stub("lightning", Fabric=object)
stub("lightning.fabric")
stub("lightning.fabric.strategies", FSDPStrategy=object)
stub("lightning.fabric.utilities")
stub("lightning.fabric.utilities.load", _lazy_load=None)
stub("lightning_utilities")
stub("lightning_utilities.core")
stub("lightning_utilities.core.imports", RequirementCache=lambda what: what.startswith("lightning"))
from lit_gpt.lora import Config, GPT, mark_only_lora_as_trainable
from lit_gpt.utils import chunked_cross_entropy


def kept(forward, aside):
    """Bytes of what forward() saves, and how many storages of each size."""
    seen, sizes = {}, {}
    aside = {t.untyped_storage().data_ptr() for t in aside}

    def pack(t):
        s = t.untyped_storage()
        if s.data_ptr() not in aside:
            seen[s.data_ptr()] = s                      # held: an address is not used again
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        forward()
    for s in seen.values():
        sizes[s.nbytes()] = sizes.get(s.nbytes(), 0) + 1
    return sum(s.nbytes() for s in seen.values()), sizes


def a_block(model_of, hidden, what):
    """What one more block saves: three less two."""
    total, sizes = zip(*[model_of(n) for n in (2, 3)])
    unit = hidden * TOKENS
    more = {s: n - sizes[0].get(s, 0) for s, n in sizes[1].items() if n > sizes[0].get(s, 0)}
    print("%-34s %6.3f bytes x hidden %d a token and block:" % (what, (total[1] - total[0]) / unit, hidden),
          ", ".join("%d of %.3f" % (n, s / unit) for s, n in sorted(more.items(), reverse=True) if s / unit > 0.01))
    return (total[1] - total[0]) / unit


def lit(name):
    def of(layers):
        torch.set_default_dtype(torch.bfloat16)
        m = GPT(Config.from_name(name, n_layer=layers, padded_vocab_size=512, **LORA))
        torch.set_default_dtype(torch.float32)
        mark_only_lora_as_trainable(m)
        m.max_seq_length = TOKENS
        ids = torch.zeros(1, TOKENS, dtype=torch.long)
        return kept(lambda: m(ids), [*m.parameters(), m.cos, m.sin])
    return of


def peft(config):
    def of(layers):
        config.num_hidden_layers, config.vocab_size, config._attn_implementation = layers, 512, "sdpa"
        m = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        m = get_peft_model(m, LoraConfig(r=8, lora_alpha=16, lora_dropout=0.05, target_modules=["q_proj", "v_proj"]), autocast_adapter_dtype=False)
        m.train()
        ids = torch.zeros(1, TOKENS, dtype=torch.long)
        return kept(lambda: m(input_ids=ids, use_cache=False), [*m.parameters(), *m.buffers()])
    return of


def llama(hidden, mlp, heads):
    return transformers.LlamaConfig(hidden_size=hidden, intermediate_size=mlp, num_attention_heads=heads, num_key_value_heads=heads)


for name, hidden, config in (("Llama-2-7b-hf", 4096, llama(4096, 11008, 32)), ("Llama-2-13b-hf", 5120, llama(5120, 13824, 40)),
                             ("phi-1_5", 2048, transformers.PhiConfig(hidden_size=2048, intermediate_size=8192, num_attention_heads=32,
                                                                      hidden_act="gelu_pytorch_tanh", resid_pdrop=0.0))):
    ours, theirs = a_block(lit(name), hidden, name + ", litgpt"), a_block(peft(config), hidden, name + ", PEFT")
    print("%-34s %+6.3f" % ("", ours - theirs))

V = 4096
logits = []


def loss():
    logits.extend(torch.randn(1, 128, V, dtype=torch.bfloat16, requires_grad=True).float() for _ in range(TOKENS // 128))
    chunked_cross_entropy(logits, torch.zeros(1, TOKENS, dtype=torch.long))


bytes, _ = kept(loss, [])
print("the loss, litgpt: %.2f bytes a logit" % ((bytes + sum(c.untyped_storage().nbytes() for c in logits)) / TOKENS / V))
