/* test_float8.c -- tests/emu/test_float8.c on a real device, with fresh numbers. */
#include "tests/gpu/fresh.h"

#define main tested
#include "tests/emu/test_float8.c"
#undef main

FRESH_MAIN
