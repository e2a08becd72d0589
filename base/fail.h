/* fail.h -- report an error and return -1.
 *
 *     return fail("%s: %s", path, strerror(errno));
 *
 * The function that knows the facts says what went wrong, where, and what
 * would be right, in one line; those above it release what they hold and pass
 * the -1 on.  `main` then exits with 2 for bad input or usage, 1 otherwise. */
#ifndef DPX_FAIL_H
#define DPX_FAIL_H

#include <stddef.h>

/* Prints "dpx: <message>\n" on stderr and returns -1.  One line of at most 1500 bytes, whatever names
 * the message holds: what is not printable is escaped (printable.h), the middle of a longer one left out. */
int fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* From now on messages of this thread go into `into` (always terminated, cut at `size`)
 * instead of stderr; NULL restores stderr.  For tests and for fuzzing. */
void fail_capture(char *into, size_t size);

/* The same where messages may be captured already: what was before is given back with fail_restore().  Size 1: messages are not made. */
struct fail_sink { char *into; size_t size; };
struct fail_sink fail_divert(char *into, size_t size);
void fail_restore(struct fail_sink before);

/* What is printed on stderr is copied to `to` as well, a line a message, cut at `size`: for a document that says why there is no answer.
 * Of the calling thread; others have their messages diverted. */
void fail_copies(char *to, size_t size);
/* One line more there: what another process said on stderr. */
void fail_copied(const char *line);

/* Called before anything is printed on standard error beside what it would spoil (a progress line); NULL: nothing is.  Of the process. */
void fail_clears(void (*clear)(void));
void fail_clear(void);

#endif
