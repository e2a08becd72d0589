/* mpi_resume.c -- plans of the matrix that go on from a state bit for bit (resume_check.h).
 *
 *     mpirun -n N mpi_resume host|device LIST [FROM]     those of mpi_matrix's list for N ranks, from number FROM; on an asynchronous
 *                                                        device (tests/exec/fake_device.h) a fourth of them
 *
 * Says what mpi_matrix says. */
#define _GNU_SOURCE
#include "tests/exec/fake_device.h"

#include "tests/mpi/matrix_plans.h"
#include "tests/mpi/resume_check.h"

int main(int argc, char **argv)
{
    struct choices chosen = { 0 };
    struct plan p;
    char name[256];

    start_ranks(&argc, &argv);
    models_load();
    if (argc < 3 || !matrix_read(argv[2], world, &chosen))
        MPI_Abort(MPI_COMM_WORLD, 2);
    bool device = !strcmp(argv[1], "device");
    for (int i = argc > 3 ? atoi(argv[3]) : 0; i < chosen.n; i++) {
        if (device && i % 4)
            continue;
        matrix_plan(&chosen.c[i], &p);
        matrix_words(&chosen.c[i], &p, name, sizeof name);
        plan_begins(i, name);
        struct device *d = device ? fake_open((unsigned)(1000 * i + rank)) : NULL;
        resume_plan(&p, d);
        device_close(d);
        plan_ends();
    }
    free(chosen.c);
    models_free();
    MPI_Finalize();
    return 0;
}
