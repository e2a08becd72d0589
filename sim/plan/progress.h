/* progress.h -- how far a long command is, on standard error; and Ctrl-C as a question.
 *
 *     progress_start(&p, points, "points");
 *     for (i = 0; i < points && !progress_stopped(); i++, progress_at(&p, i))
 *         ...
 *     progress_end(&p);
 *
 * Nothing is said in the first second.  A terminal gets one line that changes, a file a line after 1, 2, 4, 8 ... s. */
#ifndef DPX_PROGRESS_H
#define DPX_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress { int64_t of; const char *what; double start, next; bool terminal, shown; };

/* From now on the first SIGINT or SIGTERM only sets progress_stopped(); the second ends the process. */
void progress_start(struct progress *p, int64_t of, const char *what);
void progress_at(struct progress *p, int64_t done);
void progress_end(struct progress *p);
bool progress_stopped(void);

#endif
