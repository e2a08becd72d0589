#!/usr/bin/env python3
"""Records DeepSpeed's own ZeRO memory estimates, as golden numbers for dpx.

    python record_estimators.py > estimators.txt

Every line is one call of each option on one set of inputs:

    P LL gpus_per_node nodes abf  (cpu gpu) x 8

in the order zero2 offload, zero2, zero3 offload all (zero_init, not), zero3 offload optimizer
(zero_init, not), zero3 none (zero_init, not).  abf is written as a hexadecimal float, so that a
reader gets the same bits.  The inputs are corners (odd sizes, 3 and 7 nodes, whose reciprocal is
not a binary fraction; products beyond 2^53, where ints round when they become floats) and
pseudo-random ones from a fixed seed.

Needs deepspeed (installed with DS_BUILD_OPS=0) and torch; no GPU.
"""
import os
import random
import sys

os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed
from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs as zero3
from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs as zero2


def estimates(P, LL, gpn, nodes, abf):
    hw = dict(num_gpus_per_node=gpn, num_nodes=nodes, additional_buffer_factor=abf)
    out = []
    for offload in (True, False):
        out += zero2(P, cpu_offload=offload, **hw)
    for optimizer, params in ((True, True), (True, False), (False, False)):
        for init in (True, False):
            out += zero3(P, LL, cpu_offload=optimizer, cpu_offload_params=params,
                         zero_init=init, **hw)[:2]
    return out


def inputs():
    for P, LL in ((125_000_000, 40_000_000), (124_439_808, 38_597_376), (8_030_261_248, 525_336_576),
                  (405_853_388_800, 2_101_346_304), (1, 1), (7, 3), (999_999_999_989, 1_000_003)):
        for gpn, nodes in ((1, 1), (8, 1), (8, 2), (3, 1), (1, 3), (7, 7), (4, 5), (8, 2048), (72, 9)):
            for abf in (1.5, 1.0, 1.1, 0.0):
                yield P, LL, gpn, nodes, abf
    rng = random.Random(20)
    for _ in range(500):
        P = rng.randrange(1, 1 << rng.randrange(4, 44))
        LL = rng.randrange(1, P + 1)
        yield P, LL, rng.randrange(1, 17), rng.randrange(1, 130), rng.choice((1.5, rng.uniform(0, 4)))
    for _ in range(100):        # beyond 2^53, and results still within 62 bits
        P = rng.randrange(1 << 52, 1 << 54)
        yield P, rng.randrange(1, P), rng.randrange(1, 4), rng.randrange(1, 4), rng.uniform(0, 2)


print(f"# deepspeed {deepspeed.__version__}, python {sys.version.split()[0]}")
for case in inputs():
    *ints, abf = case
    print(*ints, abf.hex(), *estimates(*case))
