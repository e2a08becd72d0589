/* timeline.c -- the critical path of a run, read back from its last entry. */
#include "sim/clock/timeline.h"

#include <stdlib.h>
#include <string.h>

void run_free(struct run *r)
{
    free(r->ran);
    memset(r, 0, sizeof *r);
}

int64_t run_critical(const struct run *r, int64_t *out, int64_t n)
{
    int64_t at = -1, found = 0;

    for (int64_t i = 0; i < r->n; i++)
        if (at < 0 || r->ran[i].end > r->ran[at].end)
            at = i;
    while (at >= 0 && found < n) {
        out[found++] = at;
        at = r->ran[at].cause;
    }
    return found;
}
