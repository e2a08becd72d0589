/* accuracy_offload.c -- part of `make accuracy-public`: published runs with offload, and others of no large table, beside dpx's predictions.  What
 * sets them apart stands in sim/notebook.md, "Offload". */
#include <math.h>
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

struct recording { int rows[2], inside[2]; double error[2], bias[2], worst[2]; };

/* The GPU computes for at least 95 % of the step: [0]; else, and where the profiler did not say, [1]. */
static void print_recorded(const struct offload_row *r, void *arg)
{
    struct recording *of = arg;
    double error = 100 * (r->step_s / r->published - 1);
    int waits = r->kernels < .95 * r->published;

    of->rows[waits]++;
    of->inside[waits] += r->low_s <= r->published && r->published <= r->high_s;
    of->error[waits] += fabs(error);
    of->bias[waits] += error;
    of->worst[waits] = fabs(error) > fabs(of->worst[waits]) ? error : of->worst[waits];
    printf("%-100s %8.1f", r->what, 1e3 * r->published);
    if (r->kernels > 0)
        printf(" %8.1f", 1e3 * r->kernels);
    else
        printf(" %8s", "-");
    printf(" %8.1f %7.1f-%-7.1f %+7.1f %%\n", 1e3 * r->step_s, 1e3 * r->low_s, 1e3 * r->high_s, error);
}

/* Trainings of PyTorch that torch_steps.py recorded on one GPU. */
static int recorded(const char *gpu, const char *rows)
{
    static const char *const names[2] = { "bound by the GPU", "bound by the host, or not known" };
    struct recording of = { 0 };

    printf("trainings of PyTorch on one %-72s %8s %8s %8s %15s %9s\n", gpu, "measured", "kernels", "dpx", "90 %", "error");
    if (offload_each_row(rows, print_recorded, &of) < 0)
        return -1;
    for (int i = 0; i < 2; i++)
        printf("%s: %d rows, MAPE %.1f %%, bias %+.1f, worst %+.1f; %d inside\n", names[i], of.rows[i], of.error[i] / of.rows[i], of.bias[i] / of.rows[i],
               of.worst[i], of.inside[i]);
    return 0;
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
    if (offload_each_row(TUNED_ROWS, print, NULL) < 0)
        return 1;
    return recorded("H200 (tests/gpu/h200): ms of a step", H200_ROWS) < 0 || recorded("H100 (tests/gpu/h100): ms of a step", H100_ROWS) < 0;
}
