/* test_rows.c -- tests/emu/test_rows.c on a real device, with fresh numbers. */
#include "tests/gpu/fresh.h"

#define main tested
#include "tests/emu/test_rows.c"
#undef main

FRESH_MAIN
