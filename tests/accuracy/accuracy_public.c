/* accuracy_public.c -- `make accuracy-public`: dpx's predictions beside published throughput.
 *
 *     accuracy_public [--rows] [DIR]      --rows: every row; DIR: where the CSV files are
 *
 * Nothing here is fitted: constants of sim/ come from single kernels and collectives. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "tests/accuracy/megatron_rows.h"
#include "tests/accuracy/public_rows.h"
#include "tests/accuracy/results.h"

static const char *const gpus[] = { "a100-40gb", "a100-80gb", "h100" };
enum { NGPUS = sizeof gpus / sizeof *gpus };

static void print_score(const char *what, const struct public_score *s, bool interval)
{
    printf("  %-26s %4d %6.1f %6.1f %6.1f %+7.1f %+6.1f  %6.2f %6.2f", what, s->n, 100 * s->mape,
           100 * s->median, 100 * s->p90, 100 * s->worst, 100 * s->bias, s->tau, s->tau_mfu);
    if (interval)
        printf("  %4.0f %5.0f", 100.0 * s->inside / s->n, 100 * s->width);
    printf("\n");
}

static void print_head(void)
{
    printf("  %-26s %4s %6s %6s %6s %7s %6s  %6s %6s  %4s %5s\n", "errors of step time, %", "rows",
           "MAPE", "median", "P90", "worst", "bias", "tau", "of MFU", "in", "width");
}

static bool is_compiled(const struct public_row *r, void *arg) { return r->compiled == *(const bool *)arg; }

static void print_set(const struct public_set *set)
{
    print_head();
    for (int g = 0; g < NGPUS; g++)
        for (int guess = PUBLIC_STEP; guess <= PUBLIC_BASELINE; guess++) {
            struct public_score s = public_score(set, gpus[g], (enum public_guess)guess, NULL, NULL);
            char what[64];
            if (!s.n || !isfinite(s.mape))              /* of one model alone there is no guess */
                continue;
            snprintf(what, sizeof what, "%s%s", gpus[g], guess == PUBLIC_BASELINE ? ", one median MFU" : "");
            print_score(what, &s, guess == PUBLIC_STEP);
        }
    struct public_score all = public_score(set, NULL, PUBLIC_STEP, NULL, NULL);
    print_score("together", &all, true);
    for (int compiled = 0; compiled < 2 && set->source == PUBLIC_TORCHTITAN; compiled++) {
        bool which = compiled;
        struct public_score s = public_score(set, NULL, PUBLIC_STEP, is_compiled, &which);
        if (s.n)
            print_score(compiled ? "torch.compile" : "eager", &s, true);
    }
}

static void print_skipped(const struct public_set *set)
{
    for (int i = 0; i < set->n; i++) {
        const char *why = set->row[i].skipped;
        int n = 0;
        bool first = true;

        for (int j = 0; j < set->n; j++) {
            n += !strcmp(set->row[j].skipped, why);
            first = first && (j >= i || strcmp(set->row[j].skipped, why));
        }
        if (*why && first)
            printf("  skipped: %3d rows, %s\n", n, why);
    }
}

/* ---- where the errors are ---- */

struct between { const char *what; int64_t low, high; };

static int64_t value(const struct public_row *r, const char *what)
{
    return !strcmp(what, "seq") ? r->seq : !strcmp(what, "gpus") ? r->gpus
           : !strcmp(what, "recompute") ? r->recompute : !strcmp(what, "micro-batch")
           ? r->micro_batch * r->seq : r->pure;
}

static bool is_between(const struct public_row *r, void *arg)
{
    const struct between *b = arg;

    return b->low <= value(r, b->what) && value(r, b->what) < b->high;
}

static bool is_model(const struct public_row *r, void *arg)
{
    return !strcmp(r->model, arg);
}

static void print_parts(const struct public_set *set)
{
    static const struct between parts[] = {
        { "seq", 0, 1025 }, { "seq", 1025, 4097 }, { "seq", 4097, 16385 }, { "seq", 16385, 1 << 30 },
        { "micro-batch", 0, 16385 }, { "micro-batch", 16385, 40000 }, { "micro-batch", 40000, 1 << 30 },
        { "gpus", 0, 9 }, { "gpus", 9, 65 }, { "gpus", 65, 1 << 30 },
        { "recompute", 0, 1 }, { "recompute", 1, 2 },
    };
    static char models[][16] = { "mpt-125m", "mpt-350m", "mpt-760m", "mpt-1b", "mpt-7b", "mpt-70b" };

    printf("\n  by part: MAPE and bias, %%\n  %-26s", "");
    for (int g = 0; g < NGPUS; g++)
        printf("  %22s", gpus[g]);
    printf("\n");
    for (size_t i = 0; i < sizeof parts / sizeof *parts + sizeof models / sizeof *models; i++) {
        bool part = i < sizeof parts / sizeof *parts;
        struct between b = part ? parts[i] : parts[0];
        char *model = part ? NULL : models[i - sizeof parts / sizeof *parts], what[64];

        if (!part)
            snprintf(what, sizeof what, "%s", model);
        else if (!strcmp(b.what, "recompute"))
            snprintf(what, sizeof what, "recompute %s", b.low ? "full" : "none");
        else
            snprintf(what, sizeof what, "%s%s up to %.0f", b.what, strcmp(b.what, "micro-batch")
                     ? "" : ", tokens", (double)(b.high - 1));
        printf("  %-26s", what);
        for (int g = 0; g < NGPUS; g++) {
            struct public_score s = public_score(set, gpus[g], PUBLIC_STEP, part ? is_between : is_model,
                                                 part ? (void *)&b : model);
            if (s.n)
                printf("  %3d rows %5.1f %+6.1f ", s.n, 100 * s.mape, 100 * s.bias);
            else
                printf("  %22s", "-");
        }
        printf("\n");
    }
}

static const struct public_set *sorting;

static int by_error(const void *a, const void *b)
{
    double x = fabs(public_error(&sorting->row[*(const int *)a], PUBLIC_STEP));
    double y = fabs(public_error(&sorting->row[*(const int *)b], PUBLIC_STEP));

    return (x < y) - (x > y);
}

static void print_row(const struct public_row *r)
{
    printf("  %+6.1f  %-12s %-9s %4d gpus %6d x %-3d x %-2d %-9s %9.0f of %7.0f tokens/s   "
           "exposed %4.1f idle %4.1f optimizer %4.1f %% %s\n", 100 * public_error(r, PUBLIC_STEP), r->model, r->gpu,
           (int)r->gpus, (int)r->seq, (int)r->micro_batch, (int)r->accumulation,
           r->compiled ? "compiled" : r->recompute ? "recompute" : "", r->predicted, r->tokens,
           100 * r->t.line.exposed_s / r->t.line.step_s, 100 * r->t.line.idle_s / r->t.line.step_s,
           100 * r->t.line.optimizer_s / r->t.line.step_s, r->how);
}

static void print_worst(const struct public_set *set, int most)
{
    int at[PUBLIC_ROWS], n = 0;

    for (int i = 0; i < set->n; i++)
        if (set->row[i].done)
            at[n++] = i;
    sorting = set;
    qsort(at, (size_t)n, sizeof *at, by_error);
    printf("\n  the worst: error of step time, then tokens/s per GPU, predicted of published\n");
    for (int i = 0; i < n && i < most; i++)
        print_row(&set->row[at[i]]);
}

static void print_pairs(const struct public_set *const sets[2])
{
    struct public_pairs p[2][NCHOICE], all = { 0 };

    for (int s = 0; s < 2; s++)
        public_pairs(sets[s], p[s]);
    printf("\npairs of rows that differ in one choice: order right, or a tie that was one\n");
    for (int c = 0; c < NCHOICE; c++) {
        struct public_pairs x = { p[0][c].n + p[1][c].n, p[0][c].right + p[1][c].right, p[0][c].ties + p[1][c].ties };
        printf("  %-16s %3d pairs  %3d right  %3d ties\n", public_choice_name((enum public_choice)c), x.n, x.right, x.ties);
        all.n += x.n, all.right += x.right, all.ties += x.ties;
    }
    printf("  %-16s %3d pairs  %3d right (%.0f %%)  %3d ties\n", "together", all.n, all.right, 100.0 * all.right / all.n, all.ties);
}

/* ---- verdicts ---- */

static int count(const struct public_set *set, const char *gpu, enum public_memory m)
{
    int n = 0;

    for (int i = 0; i < set->n; i++)
        n += set->row[i].done && set->row[i].memory == m && !strcmp(set->row[i].gpu, gpu);
    return n;
}

/* How far rows that ran and are refused are beyond the limit. */
static void print_refused(const struct public_set *set, const char *gpu)
{
    int refused = 0, head = 0;
    double most = -1;

    for (int i = 0; i < set->n; i++) {
        const struct public_row *r = &set->row[i];
        if (!r->done || r->memory < MEMORY_ALLOCATED || strcmp(r->gpu, gpu))
            continue;
        refused++;
        head += r->peak_in_head;
        most = fmax(most, r->over);
    }
    if (refused)
        printf("  %-10s %d refused, %d with their peak in the loss; active memory up to %+.1f %% of the limit\n", gpu, refused,
               head, 100 * most);
}

/* Every row ran. */
static void print_verdicts(const struct public_set *set)
{
    static const char *const over[NMEMORY] = { "", "", "", "allocated", "with context", "reserved" };

    printf("\n  memory of rows, which all ran\n  %-10s %5s %6s %9s %8s  %8s", "", "fit", "tight:", "headroom", "retries",
           "refused:");
    for (int m = MEMORY_ALLOCATED; m < NMEMORY; m++)
        printf(" %12s", over[m]);
    printf("\n");
    for (int g = 0; g < NGPUS; g++) {
        int headroom = count(set, gpus[g], MEMORY_HEADROOM), retries = count(set, gpus[g], MEMORY_RETRIES), refused = 0;
        for (int m = MEMORY_ALLOCATED; m < NMEMORY; m++)
            refused += count(set, gpus[g], (enum public_memory)m);
        printf("  %-10s %5d %6d %9d %8d  %8d", gpus[g], count(set, gpus[g], MEMORY_FITS), headroom + retries, headroom,
               retries, refused);
        for (int m = MEMORY_ALLOCATED; m < NMEMORY; m++)
            printf(" %12d", count(set, gpus[g], (enum public_memory)m));
        printf("\n");
    }
    for (int i = 0; i < set->n && set->source == PUBLIC_TORCHTITAN; i++) {
        const struct public_row *r = &set->row[i];
        if (r->done && r->memory >= MEMORY_ALLOCATED)
            printf("  refused: %s %d x %d on %s, %s\n", r->model, (int)r->seq, (int)r->micro_batch, r->gpu, r->how);
    }
    for (int g = 0; g < NGPUS && set->source == PUBLIC_LLM_FOUNDRY; g++)
        print_refused(set, gpus[g]);
}

/* ---- all kinds ---- */

static bool same_work(const struct public_row *a, const struct public_row *b)
{
    return !strcmp(a->source, b->source) && !strcmp(a->model, b->model) && !strcmp(a->gpu, b->gpu) && a->gpus == b->gpus && a->seq == b->seq &&
           a->float8 == b->float8 && a->pure == b->pure;
}

static void add_results(const struct public_set *set, struct results *all)
{
    int problem[PUBLIC_ROWS] = { 0 };

    for (int i = 0; i < set->n; i++) {
        const struct public_row *r = &set->row[i];
        char kind[64];
        for (int j = 0; j < i && !problem[i]; j++)
            problem[i] = same_work(r, &set->row[j]) ? problem[j] : 0;
        if (!problem[i])
            problem[i] = ++all->problems;
        if (set->source == PUBLIC_LLM_FOUNDRY)
            snprintf(kind, sizeof kind, "llm-foundry, FSDP1, 16 bits, %s", r->gpu);
        else
            snprintf(kind, sizeof kind, "torchtitan, %s, %s, %s", r->compiled ? "compiled" : "eager", r->float8 ? "float8" : "16 bits", r->gpu);
        struct result *of = results_add(all, kind);
        snprintf(of->why, sizeof of->why, "%s", r->skipped);
        of->problem = problem[i];
        of->published_s = 1 / r->tokens;
        if (r->done)
            of->predicted_s = 1 / r->predicted, of->low_s = 1 / r->high, of->high_s = 1 / r->low;
        of->guess_s = r->done && r->baseline > 0 ? 1 / r->baseline : 0;
        of->refused = r->done && r->memory >= MEMORY_ALLOCATED;
    }
}

static int set_of(const char *dir, const char *file, enum public_source source, struct public_set *set)
{
    char path[512];

    snprintf(path, sizeof path, "%s/%s", dir, file);
    if (public_read(path, source, set) < 0 || public_predict(set) < 0)
        return -1;
    public_baseline(set);
    return 0;
}

int main(int argc, char **argv)
{
    static struct public_set foundry, titan;
    static struct results all;
    bool rows = argc > 1 && !strcmp(argv[1], "--rows");
    const char *dir = argc > 1 + rows ? argv[1 + rows] : "tests/accuracy";

    if (set_of(dir, "llm_foundry.csv", PUBLIC_LLM_FOUNDRY, &foundry) < 0
        || set_of(dir, "torchtitan.csv", PUBLIC_TORCHTITAN, &titan) < 0)
        return 1;
    printf("llm-foundry: FSDP1, MPT, 2023 (mosaicml/llm-foundry scripts/train/benchmarking)\n");
    print_set(&foundry);
    print_skipped(&foundry);
    print_verdicts(&foundry);
    print_parts(&foundry);
    print_worst(&foundry, rows ? PUBLIC_ROWS : 10);
    printf("\ntorchtitan: FSDP2, Llama (pytorch/torchtitan)\n");
    print_set(&titan);
    print_skipped(&titan);
    print_worst(&titan, PUBLIC_ROWS);
    print_verdicts(&titan);
    print_pairs((const struct public_set *const[]){ &foundry, &titan });

    add_results(&foundry, &all);
    add_results(&titan, &all);

    char path[512];
    snprintf(path, sizeof path, "%s/megatron.csv", dir);
    printf("\nMegatron-LM: dense models in 16 bits (NVIDIA/dgxc-benchmarking; arXiv 2104.04473, 2205.05198)\n");
    if (megatron_rows_print(path, rows, &all) < 0)
        return 1;
    snprintf(path, sizeof path, "%s/experts.csv", dir);
    printf("\nMegatron-LM: mixtures of experts in 16 bits and fp8 (NVIDIA/dgxc-benchmarking)\n");
    if (megatron_rows_print(path, rows, &all) < 0)
        return 1;
    snprintf(path, sizeof path, "%s/adapters.csv", dir);
    printf("\nMegatron-LM: LoRA of NeMo, dense models in 16 bits and fp8 (NVIDIA/dgxc-benchmarking)\n");
    if (megatron_rows_print(path, rows, &all) < 0)
        return 1;
    printf("\nall by framework, kind and GPU\n");
    results_print(&all);
    return 0;
}
