#!/usr/bin/env python3
"""What NeMo-RL's Python takes of a token of a response once the engine is done: sim/plan/phases_nemo.c takes its rates from here.

    tests/bench/responses_cost.py       needs torch, transformers and tokenizers; no GPU, some seconds

In the unit of issue_cost.py, a kernel of a tiny Llama's forward without gradients.

    a log-probability       models/generation/vllm/vllm_worker.py, generate(): put at its place in a tensor, by a position that is one too
    a token decoded         experience/rollouts.py, generate_responses(): tokenizer.batch_decode(), which one process does for all responses
"""
import random
import time
from types import SimpleNamespace as Of

import torch
from issue_unit import kernel_without_gradients, model, seconds
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

TOKENS = 3000
torch.set_num_threads(1)


def put_in_place():
    start, said, into = torch.tensor([150])[0], [{i: Of(logprob=-0.1)} for i in range(TOKENS)], torch.zeros(4096)

    def loop():
        for i, one in enumerate(said):
            if one:
                position = start + i
                into[position] = next(iter(one.items()))[1].logprob
    return seconds(loop) / TOKENS


def decoded():
    words = "let us consider the equation x^2 + 3x = so we have therefore answer is number of ways \\frac{1}{2}".split()
    random.seed(1)
    text = [" ".join(random.choice(words) + random.choice(["", ",", ".", "\n"]) for _ in range(2000)) for _ in range(50)]
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer, bpe.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
    bpe.train_from_iterator(text, trainers.BpeTrainer(vocab_size=3000, special_tokens=["<pad>"]))
    fast = PreTrainedTokenizerFast(tokenizer_object=bpe, pad_token="<pad>")
    ids = [torch.randint(5, fast.vocab_size, (TOKENS,)) for _ in range(32)]
    best = float("inf")
    for _ in range(5):
        t = time.thread_time()
        fast.batch_decode(ids, skip_special_tokens=True)
        best = min(best, time.thread_time() - t)
    return best / len(ids) / TOKENS


if __name__ == "__main__":
    unit, kernels = kernel_without_gradients(model())
    print("a kernel of %4d, forward without gradients    %7.2f us" % (kernels, 1e6 * unit))
    print("a log-probability                              %7.3f of that" % (put_in_place() / unit))
    print("a token decoded                                %7.3f" % (decoded() / unit))
