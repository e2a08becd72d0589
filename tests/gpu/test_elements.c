/* test_elements.c -- tests/emu/test_elements.c on a real device, with fresh numbers. */
#include "tests/gpu/fresh.h"

#define main tested
#include "tests/emu/test_elements.c"
#undef main

FRESH_MAIN
