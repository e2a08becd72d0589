/* matrix_ranks.h -- the ranks of one launch that run plan after plan, and what they say of each: a
 * line "plan NUMBER NAME", lines that say what is wrong, "done".  matrix.sh counts them. */
#ifndef DPX_TESTS_MPI_MATRIX_RANKS_H
#define DPX_TESTS_MPI_MATRIX_RANKS_H

#include <mpi.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/train/train.h"

enum { MOST_STEPS = 3 };

static int rank, world, steps = MOST_STEPS;
static char wrong[4000];                /* this rank's, of the plan that runs */

__attribute__((format(printf, 1, 2)))
static void complain(const char *format, ...)
{
    size_t at = strlen(wrong);
    va_list ap;

    va_start(ap, format);
    vsnprintf(wrong + at, sizeof wrong - at, format, ap);
    va_end(ap);
}

static struct train_args args_of(const struct plan *p, bool alone)
{
    return (struct train_args){ .plan = p, .seed = 5, .steps = steps, .warmup = 1, .lr = 3e-3,
                                .min_lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1,
                                .limit = INT64_MAX, .null = alone, .threads = 1, .offload_dir = cluster_host_folder() };
}

static void start_ranks(int *argc, char ***argv)
{
    int provided;

    MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
}

static void plan_begins(int number, const char *name)
{
    if (rank == 0)
        printf("plan %d %s\n", number, name);
    fflush(stdout);
    wrong[0] = '\0';
}

/* With what the ranks complain of, in their order. */
static void plan_ends(void)
{
    char *all = rank == 0 ? calloc((size_t)world, sizeof wrong) : NULL;

    MPI_Gather(wrong, sizeof wrong, MPI_CHAR, all, sizeof wrong, MPI_CHAR, 0, MPI_COMM_WORLD);
    for (int i = 0; rank == 0 && i < world; i++)
        printf("%s", all + (size_t)i * sizeof wrong);
    free(all);
    if (rank == 0)
        printf("done\n");
    fflush(stdout);
}

#endif
