#!/usr/bin/env python3
"""DeepSpeed's published figures of ZeRO++ beside predictions.

    python3 tests/accuracy/zeropp.py [build/dpxplan]

Two sources, both deepspeedai/DeepSpeed@edaa72212.
  zeropp_log.csv  the log that docs/_tutorials/zeropp.md shows (assets/images/zeropp/*.png): model, options and machine are stated, all but
                  the nodes' links, for which each number is tried: 18B, 4 nodes of 16 V100s, a sample of 512 tokens on each
  zeropp.csv      the 40 bars of the post's three charts (blogs/zeropp, assets/images/eval{1,2,3}.png; labels are rounded to 1 TFLOP/s):
                  ZeRO-3 and ZeRO++ (qwZ, hpZ, qgZ) on 384 V100s by size of the model, network of a node and tokens a GPU
What a TFLOP/s is, the log says: its 6.428 samples/s are 7.65 of them, and 17.388 are 20.70, by Megatron's formula with recomputed
blocks (flops() below), about 8 a parameter and token.  So bars are seconds, too.
What the charts leave open is a range of assumptions; each combination is planned twice, and the first of each is "the" prediction:
  shapes     18B as the tutorial has it; of the others two of that size whose widths 384 ranks divide, as the quantisers ask
  recompute  gathers in the node, as hpZ has it today, or as in DeepSpeed 0.10.0, the post's release, whose hook before a recomputed module
             says forward=True and so gathers over all nodes (runtime/zero/parameter_offload.py:494, partition_parameters.py:1010): its backward
             hooks alone stay in the node, and lie between a plan with hpZ and one without, which are the two that are planned
  buckets    the tutorial's reduce_bucket_size, or DeepSpeed's default
  latencies  of hops between ranks: NCCL's own, or three times those, as published all-reduces across nodes have (sim/price/coll_cost.c)
  rates      of a node's links: what NCCL takes them for; less by what a ring loses on 24 nodes (NVIDIA/nccl#1229, the same file); or the least
             that dpx's own 90 % interval has for links that only a datasheet describes, from two reports that lost 30 to 45 % (again there)
How many ranges hold the published ratio is counted with the last rate and without.
Samples: of 512 tokens, as in the tutorial.  Micro-steps: one.  Recompute: all blocks.  Kernels: eager.  overlap_comm: true, as in the
tutorial and by default.  A plan that needs more memory than there is has a time all the same; a row where all do has a mark.
"""
import csv
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile

SHAPES = {"18B": [(6144, 40)], "49B": [(9216, 48), (6144, 108)], "91B": [(12288, 50), (9216, 90)], "138B": [(12288, 76), (9216, 135)]}
PER_NODE, VOCAB, SEQ = 16, 50304, 512
HOP_US, NODE_US = 14.0, 3.4             # NCCL's, between nodes and in one (nccl tuning.cc)
LOSSES = (1, 1.07 + 0.045 * math.log2(24 / 4), 1.8)
HERE = os.path.dirname(os.path.abspath(__file__))


def flops(shape, tokens):
    """A GPU's in a step: Megatron-LM's formula for blocks that are recomputed."""
    hidden, layers = shape
    return 96 * tokens * layers * hidden ** 2 * (1 + SEQ / (6 * hidden) + VOCAB / (16 * layers * hidden))


def plan(shape, nodes, gbit, samples, bucket, late, loss, on, hpz=True):
    hidden, layers = shape
    heads = 32 if shape == SHAPES["18B"][0] else hidden // 96
    model = {"model_type": "gpt2", "n_embd": hidden, "n_layer": layers, "n_head": heads, "n_positions": SEQ, "vocab_size": VOCAB}
    options = {"reduce_bucket_size": bucket}
    if on:
        options.update({"zero_quantized_weights": True, "zero_quantized_gradients": True, "zero_hpz_partition_size": PER_NODE if hpz else 1})
    return {"dpx_plan": 1, "model": model, "strategy": "zero3", "dialect": "deepspeed", "kernels": "torch-eager", "seq": SEQ,
            "micro_batch": samples, "precision": "fp16", "recompute": "full", "deepspeed": options,
            "cluster": {"name": "dgx-2", "nodes": nodes, "gpus_per_node": PER_NODE, "gpu": "v100-32gb", "intra": {"alpha_us": late * NODE_US},
                        "inter": {"gbit_per_s": gbit / loss, "nics": max(1, gbit // 100), "alpha_us": late * HOP_US}}}


def evaluate(dpxplan, document):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump(document, f)
        f.flush()
        out = subprocess.run([dpxplan, "eval", f.name, "--json"], capture_output=True, text=True)
    if out.returncode not in (0, 3):
        sys.exit(out.stderr)
    return json.loads(out.stdout)


def rows(name):
    return list(csv.DictReader(open(os.path.join(HERE, name))))


def log(dpxplan):
    """The stated runs, by links of a node."""
    shape = SHAPES["18B"][0]
    for r in rows("zeropp_log.csv"):
        seconds, peak = float(r["seconds"]), float(r["max_allocated_mib"])
        counted = flops(shape, SEQ) / seconds / 1e12
        print("%-7s logged %.2f s, %.2f TFLOP/s (by the formula %.2f), %.0f MiB at most" % (r["what"], seconds, float(r["tflops"]), counted, peak))
        for links in (1, 2, 4, 8):
            a = evaluate(dpxplan, plan(shape, 4, 100 * links, 1, 10000000, 1, 1, r["what"] == "zero++"))
            mib = a["memory"]["allocated_peak_bytes"] / 2 ** 20
            print("        %d links of 100 Gbit/s: %.2f s (%+.1f %%), %.0f MiB (%+.1f %%)"
                  % (links, a["time"]["step_s"], 100 * (a["time"]["step_s"] / seconds - 1), mib, 100 * (mib / peak - 1)), flush=True)


def pairs(dpxplan, r):
    """(seconds of ZeRO-3 and of ZeRO++, whether both fit, both as published, the links' loss) of each combination."""
    gbit, tokens = int(r["gbit_per_s"]), int(r["tokens_per_gpu"])
    for shape, bucket, late, loss in itertools.product(SHAPES[r["model"]], (10000000, 500000000), (1, 3), LOSSES):
        args = shape, 24, gbit, tokens // SEQ, bucket, late, loss
        without = evaluate(dpxplan, plan(*args, False))
        work = flops(shape, tokens) / 1e12
        for hpz in (True, False):
            both = without, evaluate(dpxplan, plan(*args, True, hpz))
            yield ([a["time"]["step_s"] for a in both], all(a["fits"] for a in both),
                   [work / float(r[k]) for k in ("zero3_tflops", "zeropp_tflops")], loss)


def chart(dpxplan):
    held = narrowly = faster = 0
    off, ratio_off, widths = {}, [], []
    print("                         ratio to ZeRO-3                      ZeRO-3              ZeRO++")
    for r in rows("zeropp.csv"):
        a, b = float(r["zeropp_tflops"]), float(r["zero3_tflops"])
        all_pairs = list(pairs(dpxplan, r))
        ratios = [s[0] / s[1] for s, _, _, _ in all_pairs]
        narrow = [s[0] / s[1] for s, _, _, loss in all_pairs if loss < LOSSES[-1]]
        first, _, published, _ = all_pairs[0]
        least, most = (a - 0.5) / (b + 0.5), (a + 0.5) / (b - 0.5)
        inside = min(ratios) <= most and max(ratios) >= least
        held += inside
        narrowly += min(narrow) <= most and max(narrow) >= least
        faster += (ratios[0] > 1) == (a > b)
        ratio_off.append(abs(ratios[0] / (a / b) - 1))
        widths.append(max(ratios) / min(ratios))
        for k in (0, 1):
            off.setdefault((k, int(r["gbit_per_s"])), []).append((r["model"], first[k] / published[k] - 1))
        print("%-5s %4d Gbit/s %5d tokens  %.2f, predicted %.2f (%.2f to %.2f)%-9s"
              % (r["model"], int(r["gbit_per_s"]), int(r["tokens_per_gpu"]), a / b, ratios[0], min(ratios), max(ratios),
                 "" if inside else "  outside"), end="")
        print("  %7.2f s %+6.1f %%  %7.2f s %+6.1f %%%s"
              % (published[0], 100 * (first[0] / published[0] - 1), published[1], 100 * (first[1] / published[1] - 1),
                 "" if any(f for _, f, _, _ in all_pairs) else "  needs more memory"), flush=True)
    n = len(ratio_off)
    print("%d figures, %d ratios: %d ranges hold the published one (%d without the slow links; most over least: median %.2f); the prediction's sign "
          "is right in %d, its mean error %.1f %%" % (2 * n, n, held, narrowly, statistics.median(widths), faster, 100 * sum(ratio_off) / n))
    for k, what in enumerate(("ZeRO-3", "ZeRO++")):
        of = [(g, e) for (which, g), e in sorted(off.items()) if which == k]
        for name, e in [("%d Gbit/s" % g, e) for g, e in of] + [("all", sum((e for _, e in of), []))]:
            print("%s at %s: %s; 18B: %s" % (what, name, mean(e), mean([x for x in e if x[0] == "18B"])))


def mean(errors):
    e = [x for _, x in errors]
    return "%d steps, mean error %.1f %%, bias %+.1f %%" % (len(e), 100 * sum(map(abs, e)) / len(e), 100 * sum(e) / len(e)) if e else "no steps"


def main():
    dpxplan = sys.argv[1] if len(sys.argv) > 1 else "build/dpxplan"
    log(dpxplan)
    chart(dpxplan)


if __name__ == "__main__":
    main()
