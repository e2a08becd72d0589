"""The bytes that NeMo-RL's log-probabilities hold from the head's product on, and its backward, as their Python makes and drops tensors on the CPU.

    python tests/golden/memory/torch_logprob.py MODEL_UTILS COMMIT > tests/golden/memory/torch_logprob.jsonl

MODEL_UTILS is nemo_rl/distributed/model_utils.py, of which DistributedLogprob and ChunkedDistributedLogprob run with the functions that they call.  What is
in fp32 before them is as its loop has it: Megatron-LM's Float16Module hands out logits in fp32, or get_next_token_logprobs_from_logits() makes them so while
the loop has those of 16 bits."""
import ast
import json
import sys

import torch
import torch.distributed as dist
import torch.distributed.nn.functional

from torch_actor_loss import Live

SIZES = ((1, 768, 20000), (2, 512, 1024), (3, 320, 9504))        # samples, positions, vocabulary
CHUNKS = (0, 128, 1000)


def functions(path):
    tree = ast.parse(open(path).read())
    wanted = ("_compute_distributed_log_softmax", "_compute_distributed_log_softmax_with_grad", "DistributedLogprob", "ChunkedDistributedLogprob")
    tree.body = [n for n in tree.body if isinstance(n, (ast.FunctionDef, ast.ClassDef)) and n.name in wanted]
    names = {"torch": torch, "Any": object}
    exec(compile(tree, "model_utils.py", "exec"), names)
    return names


def record(of, late, chunk, samples, positions, vocab):
    x = torch.randn(samples, positions, 8, dtype=torch.bfloat16, requires_grad=True)
    w = torch.randn(vocab, 8, dtype=torch.bfloat16)
    target = torch.randint(vocab, (samples, positions))
    with Live() as live:
        for known in (x, w, target):
            live.known.add(known.untyped_storage()._cdata)
        logits = x @ w.t()
        if chunk:
            logp = of["ChunkedDistributedLogprob"].apply(logits, target, 0, vocab, chunk, dist.group.WORLD, False)
        else:
            wide = logits.to(torch.float32)
            if not late:
                del logits
            logp = of["DistributedLogprob"].apply(wide, target, 0, vocab, dist.group.WORLD, False)
            del wide
        logits = None
        forward, kept = live.peak, live.live
        gradient = torch.ones_like(logp)
        live.peak = before = live.live
        torch.autograd.backward([logp], [gradient])
        backward = live.peak - before
    return {"late": late, "chunk": chunk, "samples": samples, "positions": positions, "vocab": vocab, "forward": forward, "kept": kept, "backward": backward}


if __name__ == "__main__":
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    print(json.dumps({"torch": torch.__version__, "nemo_rl": sys.argv[2]}))
    of = functions(sys.argv[1])
    for size in SIZES:
        for late in (False, True):
            for chunk in CHUNKS if late else (0,):
                print(json.dumps(record(of, late, chunk, *size)))
