/* test_kernels_cuda.c -- tests/emu/test_kernels_cuda.c on a real device, with fresh numbers. */
#include "tests/gpu/fresh.h"

#define main tested
#include "tests/emu/test_kernels_cuda.c"
#undef main

FRESH_MAIN
