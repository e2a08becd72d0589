#!/bin/sh
# tests/exec/test_kernels_widened.sh -- linear layers where oneDNN has no bf16 product, and
# packs what it multiplies, as on a CPU without AVX-512.
ONEDNN_MAX_CPU_ISA=AVX2 exec "${B:-build}/tests/exec/test_kernels_linear"
