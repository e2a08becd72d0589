/* mpi_matrix.c -- many plans run one after the other by the ranks of one launch: the same losses
 * as one rank alone, bytes and memory as predicted.
 *
 *     mpi_matrix list some|pairs|plain|whole             the plans, a line each
 *     mpirun -n N mpi_matrix run LIST [FROM [WORDS]]     those of the list for N ranks, from number FROM,
 *                                                        those whose names have the words
 *
 * The reference is plain DDP of the paper on one rank, which rank 0 runs first in its own process;
 * tests/mpi/test_parity.sh holds that against PyTorch.  For each plan one line "plan NUMBER NAME",
 * then lines that say what is wrong, then "done".  The script beside it counts them. */
#include "tests/mpi/matrix_check.h"
#include "tests/mpi/matrix_plans.h"

static double reference[NSUBJECTS][MOST_STEPS];

static void run_references(void)
{
    for (int i = 0; i < NSUBJECTS; i++) {
        struct choice c = { .s = STRAT_DDP, .d = DIALECT_PAPER, .at = { [AXIS_SUBJECT] = i } };
        struct plan p;
        if (!matrix_plan(&c, &p))
            MPI_Abort(MPI_COMM_WORLD, 1);
        run_alone(&p, reference[i]);
    }
}

static int list(const char *extent)
{
    struct choices chosen = { 0 };

    matrix_choose(!strcmp(extent, "whole") ? WHOLE : !strcmp(extent, "plain") ? PLAIN : !strcmp(extent, "pairs") ? PAIRS : SOME, &chosen);
    matrix_print(&chosen);
    free(chosen.c);
    return 0;
}

static int run_list(const char *path, int from, const char *words)
{
    struct choices chosen = { 0 };
    struct plan p;
    char name[256];

    if (!matrix_read(path, world, &chosen))
        return 2;
    if (rank == 0)
        run_references();
    for (int i = from; i < chosen.n; i++) {
        matrix_plan(&chosen.c[i], &p);
        matrix_words(&chosen.c[i], &p, name, sizeof name);
        if (!strstr(name, words))
            continue;
        plan_begins(i, name);
        run_plan(&p, reference[chosen.c[i].at[AXIS_SUBJECT]]);
        plan_ends();
    }
    free(chosen.c);
    return 0;
}

int main(int argc, char **argv)
{
    int rc = 2;

    models_load();
    if (argc == 3 && !strcmp(argv[1], "list")) {
        rc = list(argv[2]);
        models_free();
        return rc;
    }
    start_ranks(&argc, &argv);
    if (argc >= 3 && !strcmp(argv[1], "run"))
        rc = run_list(argv[2], argc > 3 ? atoi(argv[3]) : 0, argc > 4 ? argv[4] : "");
    models_free();
    MPI_Finalize();
    return rc;
}
