/* cover.h -- stretches of time that something covers, and how much of another stretch they leave free.
 *
 *     struct cover c = { 0 };
 *     cover_add(&c, from, to);                     in order of `from`; they may overlap
 *     int64_t free = cover_free_of(&c, 100, 200);
 *     cover_free(&c);
 *
 * What is exposed of a collective is what compute leaves free of it: of a profiler's trace, of a simulated step and of one that
 * ran this is the one place that says so.  (The clock's exposed_s is another thing: what the compute stream waited for.)
 * Nanoseconds. */
#ifndef DPX_COVER_H
#define DPX_COVER_H

#include <stdint.h>

/* Apart and in order, each with what is covered before it. */
struct cover { struct cover_stretch { int64_t from, to, before; } *at; int64_t n, room; };

/* `from` is not below that of the call before; nothing where `to` is not above it. */
void    cover_add(struct cover *c, int64_t from, int64_t to);
int64_t cover_free_of(const struct cover *c, int64_t from, int64_t to);
void    cover_free(struct cover *c);

#endif
