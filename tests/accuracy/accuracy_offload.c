/* accuracy_offload.c -- part of `make accuracy-public`: published runs with offload, and others of no large table, beside dpx's predictions.  What
 * sets them apart stands in sim/notebook.md, "Offload". */
#include <stdio.h>

#include "tests/accuracy/offload_rows.h"

static void print(const struct offload_row *r, void *arg)
{
    (void)arg;
    printf("%-74s %8.3g %8.3g %7.3g-%-7.3g %+7.0f %%", r->what, r->published, r->step_s, r->low_s, r->high_s,
           100 * (r->step_s / r->published - 1));
    if (r->plan)
        printf("  %5.1f %6.1f GiB%s  %.2f %.2f %.2f", (double)r->device / 0x1p30, (double)r->host / 0x1p30,
               r->fits ? "" : " (does not fit)", r->away_s[AWAY_DOWN], r->away_s[AWAY_UP], r->away_s[AWAY_HOST]);
    printf("  %s\n", r->note);
}

int main(void)
{
    printf("%-74s %8s %8s %15s %9s  a rank, a node; copies down, up, host's threads, s\n", "offload: seconds of a step, or of AdamW alone",
           "publ.", "dpx", "90 %", "error");
    if (offload_each_row(OFFLOAD_ROWS, print, NULL) < 0)
        return 1;
    printf("other published steps\n");
    if (offload_each_row(STEPS_ROWS, print, NULL) < 0)
        return 1;
    printf("steps of fine-tuning\n");
    return offload_each_row(TUNED_ROWS, print, NULL) < 0;
}
