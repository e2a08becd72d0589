#!/bin/sh
# tests/mpi/test_seed.sh -- a GPT of 12 layers on 8 ranks under DDP, ZeRO-1, 2, 3 and FSDP with small
# buckets: losses equal, bytes and memory of every rank as predicted (mpi_seed.c).  A quarter of
# gpt-lite's width, so that 8 ranks need less than a minute on two cores.
# Runs from the root of the tree; $B is where it was built.
# shellcheck source=tests/check.sh
. tests/check.sh
# shellcheck source=tests/mpi/matrix.sh
. tests/mpi/matrix.sh
run_all 300 'the seed experiment in the small: ' 8 mpi_seed
finish
