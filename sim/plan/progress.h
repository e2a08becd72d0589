/* progress.h -- how far a long command is, on standard error; and Ctrl-C as a question.
 *
 *     progress_start(&p, points, "points");
 *     for (i = 0; i < points && !progress_stopped(); i++, progress_at(&p, i, points))
 *         ...
 *     progress_end(&p);
 *
 * A terminal gets one line that changes, from the first second on; a file a line every ten seconds.  Another thread writes
 * them, so that they come while the work takes long, too. */
#ifndef DPX_PROGRESS_H
#define DPX_PROGRESS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct progress {
    _Atomic int64_t done, of;       /* of 0: how many is not known */
    const char *what;
    double start;
    int64_t seen;                   /* what was done when a line last found more done, and seconds from the start to then */
    double seen_s;
    bool terminal, shown, ticks, over, counts;
    pthread_t ticker;
    pthread_mutex_t lock;
    pthread_cond_t  changed;
};

/* From now on the first SIGINT or SIGTERM only sets progress_stopped(); the second ends the process. */
void progress_start(struct progress *p, int64_t of, const char *what);
/* The same for work that cannot be stopped half-way: signals end the process, as they did. */
void progress_watch(struct progress *p, const char *what);
void progress_at(struct progress *p, int64_t done, int64_t of);
/* Seconds that `of` - `done` more will take, where `done` took `until_last_s` and `spent_s` have gone by: as long each as those did.
 * Negative where nobody can say: less than a fifth is done, or the one at work takes more than twice as long as those did. */
double progress_left_s(int64_t done, int64_t of, double until_last_s, double spent_s);
/* Before something is printed beside it. */
void progress_clear(struct progress *p);
void progress_end(struct progress *p);
bool progress_stopped(void);

#endif
