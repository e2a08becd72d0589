/* test_codes.c -- tests/emu/test_codes.c on a real device, with fresh numbers. */
#include "tests/gpu/fresh.h"

#define main tested
#include "tests/emu/test_codes.c"
#undef main

FRESH_MAIN
