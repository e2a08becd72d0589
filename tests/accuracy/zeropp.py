#!/usr/bin/env python3
"""DeepSpeed's published figures of ZeRO++ beside predictions.

    python3 tests/accuracy/zeropp.py [build/dpxplan]

zeropp.csv has the 40 bars of three charts (deepspeedai/DeepSpeed@edaa72212, blogs/zeropp, assets/images/eval{1,2,3}.png; labels are
rounded to 1 TFLOP/s): ZeRO-3 and ZeRO++ (qwZ, hpZ, qgZ) on 384 V100s, as the post says, by size of the model, network of a node and
tokens a GPU.  What they leave open is a range of assumptions, each combination of which is planned twice:
  shapes        GPT models of that size whose widths 384 ranks divide, as the quantisers ask (wide, deep)
  samples       one of all the tokens, or two of half of them
  micro-steps   one (tokens a GPU are a step's)
  recompute     all blocks
  kernels       eager attention (DeepSpeed of 2023 with Megatron)
  eval3         384 V100s as well; 200 and 800 Gbit/s
Printed: published ratio of ZeRO++'s rate to ZeRO-3's, the range of predicted ones, and how many rows' ranges hold the published one.
Rounding of the labels counts: (a +- 0.5) / (b +- 0.5).
"""
import csv
import json
import os
import subprocess
import sys
import tempfile

SHAPES = {"18B": [(6144, 40), (3072, 160)], "49B": [(9216, 48), (6144, 108)], "91B": [(12288, 50), (9216, 90)],
          "138B": [(12288, 76), (9216, 135)]}
NODES, PER_NODE = 24, 16            # DGX-2


def plan(shape, gbit, tokens, samples, on):
    hidden, layers = shape
    seq = tokens // samples
    model = {"model_type": "gpt2", "n_embd": hidden, "n_layer": layers, "n_head": hidden // 96, "n_positions": seq, "vocab_size": 50304}
    options = {"zero_quantized_weights": True, "zero_quantized_gradients": True, "zero_hpz_partition_size": PER_NODE} if on else {}
    return {"dpx_plan": 1, "model": model, "strategy": "zero3", "dialect": "deepspeed", "kernels": "torch-eager", "seq": seq,
            "micro_batch": samples, "precision": "fp16", "recompute": "full", "deepspeed": options,
            "cluster": {"name": "dgx-2", "nodes": NODES, "gpus_per_node": PER_NODE, "gpu": "v100-32gb",
                        "inter": {"gbit_per_s": gbit, "nics": max(1, gbit // 100)}}}


def step(dpxplan, document):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump(document, f)
        f.flush()
        out = subprocess.run([dpxplan, "eval", f.name, "--json"], capture_output=True, text=True)
    if out.returncode not in (0, 3):
        sys.exit(out.stderr)
    answer = json.loads(out.stdout)
    return answer["time"]["step_s"] if answer.get("fits") and "time" in answer else None


def main():
    dpxplan = sys.argv[1] if len(sys.argv) > 1 else "build/dpxplan"
    rows = list(csv.DictReader(open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "zeropp.csv"))))
    held = faster = told = 0
    for r in rows:
        gbit, tokens, a, b = int(r["gbit_per_s"]), int(r["tokens_per_gpu"]), float(r["zeropp_tflops"]), float(r["zero3_tflops"])
        ratios = []
        for shape in SHAPES[r["model"]]:
            for samples in (1, 2):
                without, with_all = (step(dpxplan, plan(shape, gbit, tokens, samples, on)) for on in (False, True))
                if without and with_all:
                    ratios.append(without / with_all)
        least, most = (a - 0.5) / (b + 0.5), (a + 0.5) / (b - 0.5)
        if not ratios:
            print("%-5s %4d Gbit/s %5d tokens  published %.2f  no assumption fits" % (r["model"], gbit, tokens, a / b))
            continue
        told += 1
        inside = min(ratios) <= most and max(ratios) >= least
        held += inside
        faster += (min(ratios) > 1) == (a > b)
        print("%-5s %4d Gbit/s %5d tokens  published %.2f  predicted %.2f to %.2f%s"
              % (r["model"], gbit, tokens, a / b, min(ratios), max(ratios), "" if inside else "  outside"), flush=True)
    print("%d figures, %d rows that fit: %d ranges hold the published ratio, the sign is right in %d" % (2 * len(rows), told, held, faster))


if __name__ == "__main__":
    main()
