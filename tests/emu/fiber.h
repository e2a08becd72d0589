/* fiber.h -- threads of execution that one host thread switches between, in a few instructions.
 *
 * A fiber is its stack; while it does not run, its registers lie on it.  There are FIBERS stacks,
 * made at first use and kept; each ends at a page that cannot be touched. */
#ifndef DPX_EMU_FIBER_H
#define DPX_EMU_FIBER_H

enum { FIBERS = 1024 };

/* Makes fiber i begin with entry(), which must not return; what to switch to. */
void *fiber_start(int i, void (*entry)());

/* Leaves what runs, to be continued at *left, and goes on with `to`. */
extern "C" void fiber_switch(void **left, void *to);

/* Whether the address is of the page below a fiber's stack: it has grown too large. */
bool fiber_overflow(const void *address);

#endif
