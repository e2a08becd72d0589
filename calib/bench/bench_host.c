/* bench_host.c -- the host beside a device: AdamW of its threads, as an offloaded optimizer runs it. */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "calib/bench/bench.h"
#include "calib/store/words.h"
#include "exec/device/host_info.h"
#include "exec/device/lanes.h"

/* p, g, m and v, all fp32: four are read, three written. */
enum { MOST = 100, LEAST = 5, NSTATE = 4, EACH = 28 };

struct states { float *at[NSTATE]; int64_t n; };

static int steps(struct kernels *k, const struct states *s, int64_t n, int count, double *seconds)
{
    static const struct adamw adam = { .lr = 1e-4, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1,
                                       .step = 10, .grad_scale = 1 };
    int64_t places = s->n / n;

    for (int i = 0; i < count; i++) {
        int64_t at = i % places * n;
        double from = lanes_now();
        if (kernels_ops(k)->adamw(k, &adam, n, s->at[0] + at, s->at[2] + at, s->at[3] + at, s->at[1] + at, DT_FP32, NULL,
                                  DT_FP32) < 0 || kernels_ops(k)->finish(k) < 0)
            return -1;
        seconds[i] = lanes_now() - from;
    }
    return 0;
}

static int one(struct bench *b, struct kernels *k, const struct states *s, const char *name, int threads, int64_t n,
               double slice)
{
    struct series of = { .kind = SERIES_PASS, .name = name, .dtype = DT_FP32, .ranks = b->nranks, .per_node = b->per_node,
                         .threads = b->threads, .m = threads, .bytes = EACH * n, .started = bench_wall_clock() };
    double seconds[MOST];
    int count, known = bench_known(b, &of);

    if (known)
        return known < 0 ? -1 : 0;
    if (steps(k, s, n, 2, seconds) < 0)
        return -1;
    count = bench_reps(slice, seconds[1], LEAST, MOST);
    if (bench_barrier() < 0 || steps(k, s, n, count, seconds) < 0)
        return -1;
    return bench_keep(b, &of, seconds, count, false);
}

/* With as many threads as a rank's host stream has: every size.  With fewer: the largest. */
static int with_threads(struct bench *b, const struct states *s, int threads, bool all, double seconds)
{
    enum { FIRST = 1 << 14, STEPS = 6 };
    struct kernels *k = kernels_open(threads, NULL, 0, false);
    int rc = k ? 0 : -1;

    for (int64_t n = all ? FIRST : s->n; n <= s->n && rc == 0; n *= 4)
        rc = one(b, k, s, all ? pass_words[MP_HOST_ADAMW] : "host_adamw_threads", threads, n, seconds / STEPS);
    kernels_close(k);
    return rc;
}

int bench_host(struct bench *b, int64_t largest, double seconds)
{
    struct states s = { .n = largest / (int64_t)sizeof **s.at };
    int most = b->cuda ? host_threads(b->per_node) : b->threads, rc = 0;

    for (int i = 0; i < NSTATE && rc == 0; i++)
        if (!(s.at[i] = bench_memory(largest)))
            rc = -1;
        else
            bench_fill(s.at[i], DT_FP32, s.n, 1e-3, 2e-3);
    if (rc == 0)
        rc = with_threads(b, &s, most, true, 0.6 * seconds);
    for (int threads = 1; threads < most && rc == 0; threads *= 2)
        rc = with_threads(b, &s, threads, false, 0.1 * seconds);
    for (int i = 0; i < NSTATE; i++)
        free(s.at[i]);
    return rc == 0 ? bench_flush(b) : -1;
}
