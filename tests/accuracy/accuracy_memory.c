/* accuracy_memory.c -- part of `make accuracy-public`: published peaks of memory, and those of our own runs, beside dpx's predictions, each with its meter;
 * under a row that is off by more than 3 %, what is known of it. */
#include <stdio.h>

#include "tests/accuracy/memory_rows.h"

/* Of published peaks, of runs of our own (tests/gpu), and of prime-rl's benchmarks. */
enum { PUBLISHED, OWN_RUNS, PRIMERL, NSOURCE };
static struct memory_errors errors[NSOURCE][NMETER];

static void exclude(const struct memory_row *r, void *arg)
{
    (void)arg;
    if (r->left_out)
        printf("  left out: %s (%s): %s\n", r->what, r->source, r->left_out);
}

static void print(const struct memory_row *r, void *arg)
{
    (void)arg;
    bool off = false;
    int of = strncmp(r->source, "own run", 7) == 0 ? OWN_RUNS : strncmp(r->source, "PrimeIntellect-ai/prime-rl@", 27) == 0 ? PRIMERL : PUBLISHED;

    if (r->left_out)
        return;
    printf("  %-84s", r->what);
    for (int m = 0; m < NMETER; m++) {
        memory_errors_add(&errors[of][m], r, (enum memory_meter)m);
        off |= r->published[m] > 0 && fabs((double)r->ours[m] / r->published[m] - 1) > .03;
        printf("  %6.2f", (double)r->ours[m] / 0x1p30);
        if (r->published[m] > 0)
            printf(" of %6.2f (%+5.1f %%)", r->published[m] / 0x1p30, 100 * ((double)r->ours[m] / r->published[m] - 1));
        else
            printf(" %-19s", "");
    }
    printf("  %s\n", verdict_name(r->verdict));
    if (off && r->note)
        printf("      %s\n", r->note);
}

int main(void)
{
    static const char *const names[NSOURCE] = { "published", "own runs", "prime-rl" };

    printf("memory: published peaks, GiB, predicted of published\n");
    if (memory_each_row(exclude, NULL) < 0 || memory_each_primerl(exclude, NULL) < 0)
        return 1;
    printf("  %-84s", "");
    for (int m = 0; m < NMETER; m++)
        printf("  %-26s", memory_meters[m]);
    puts("");
    if (memory_each_row(print, NULL) < 0 || memory_each_primerl(print, NULL) < 0)
        return 1;
    for (int of = 0; of < NSOURCE; of++)
        for (int m = 0; m < NMETER; m++) {
            struct memory_errors *e = &errors[of][m];
            double median = memory_errors_median(e);
            if (e->n)
                printf("  %-9s %-9s %2d rows  median %.2f %%  worst %+.1f %%\n", names[of], memory_meters[m],
                       e->n, 100 * median, 100 * e->e[e->n - 1]);
        }
    return 0;
}
