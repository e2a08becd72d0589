/* mpi_matrix.c -- many plans run one after the other by the ranks of one launch: the same losses
 * as one rank alone, bytes and memory as predicted.
 *
 *     mpirun -n N mpi_matrix some|plain|whole [FROM [WORDS]]   the plans for N ranks, from number FROM,
 *                                                              those whose names have the words
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

int main(int argc, char **argv)
{
    struct choices chosen = { 0 };
    struct plan p;
    char name[256];

    start_ranks(&argc, &argv);
    models_load();
    const char *extent = argc > 1 ? argv[1] : "some";
    matrix_choose(!strcmp(extent, "whole") ? WHOLE : !strcmp(extent, "plain") ? PLAIN : SOME, world, &chosen);
    if (rank == 0)
        run_references();
    for (int i = argc > 2 ? atoi(argv[2]) : 0; i < chosen.n; i++) {
        matrix_plan(&chosen.c[i], &p);
        matrix_words(&chosen.c[i], &p, name, sizeof name);
        if (argc > 3 && !strstr(name, argv[3]))
            continue;
        plan_begins(i, name);
        run_plan(&p, reference[chosen.c[i].at[AXIS_SUBJECT]]);
        plan_ends();
    }
    free(chosen.c);
    models_free();
    MPI_Finalize();
    return 0;
}
