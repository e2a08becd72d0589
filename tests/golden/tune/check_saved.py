#!/usr/bin/env python3
"""Has PEFT load a folder of adapters that dpxrun saved, and computes a loss with it.

    python check_saved.py FOLDER MODEL              MODEL: gpt2 or llama of ../parity

Prints the mean loss on the first 12 samples of ../parity/tokens.bin: what `dpxrun --adapters FOLDER --steps 1 --lr 0` reports.
"""
import os
import sys

import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoConfig

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "parity"))
import make_parity as parity  # noqa: E402


def main():
    folder, model = sys.argv[1:]
    at = os.path.join(HERE, "..", "parity", model)
    base = parity.build(AutoConfig.from_pretrained(at), load_file(os.path.join(at, "init.safetensors")), torch.float32)
    tuned = PeftModel.from_pretrained(base, folder)
    saved = load_file(os.path.join(folder, "adapter_model.safetensors"))
    own = {n.replace(".default", "").replace(".modules_to_save", ""): p for n, p in tuned.named_parameters()
           if ".default" in n}
    if sorted(own) != sorted(saved) or any(not torch.equal(own[n], saved[n]) for n in saved):
        sys.exit(f"PEFT has {len(own)} tensors, the file {len(saved)}, or they differ")
    with torch.no_grad():
        loss = parity.loss_of(tuned, *parity.batch_of(parity.make_tokens(), 0), False)
    print(f"{len(saved)} tensors, loss {loss.item():.7f}")


main()
