#!/usr/bin/env python3
"""Writes randn.txt: what powerSGD_hook() draws, of numpy's and PyTorch's own generators.

    python make_randn.py > randn.txt

Each line "draw SEED N ..." is one torch.manual_seed() with the next seed of numpy's RandomState(0), then the numbers of one
torch.randn() after another, of N each, in hexadecimal.
"""
import numpy
import torch

seeds = numpy.random.RandomState(0)
for lengths in ([40], [16, 3], [5, 7], [33, 15, 64], [1, 1, 17], [48]):
    seed = int(seeds.randint(1_000_000_000))
    torch.manual_seed(seed)
    print("draw", seed, *lengths)
    for n in lengths:
        print(*(float(x).hex() for x in torch.randn(1, n, 1).flatten()))
