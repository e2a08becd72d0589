/* launch.h -- a program starts its own ranks.
 *
 *     if (launch_needed())
 *         return launch_exec(&(struct launch){ .nranks = 4 }, argc, argv);
 *     launch_tune_tcp();
 *     MPI_Init_thread(...);
 *     if (launch_check(world_size) < 0)
 *         MPI_Abort(MPI_COMM_WORLD, 1);
 *
 * Under mpirun or srun the program uses what it was given.  Otherwise it starts itself
 * again under Open MPI's mpirun (4.1 and 5.0), waits, and passes signals on.  Settings go
 * by environment, so that they can be given to srun as well; one that the user has made
 * is kept. */
#ifndef DPX_LAUNCH_H
#define DPX_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>

struct launch {
    int         nranks;
    int         threads;        /* of a rank's compute (OMP_NUM_THREADS); 0: its share of the cores */
    const char *hostfile;       /* Open MPI's, one machine a line; NULL: all ranks here */
};

/* Whether no launcher started this process. */
bool launch_needed(void);

/* Before MPI_Init, under any launcher: how this program wants Open MPI to use TCP, so that both
 * directions of a link carry data at once.  A setting of the user's (OMPI_MCA_..., mpirun --mca) is kept. */
void launch_tune_tcp(void);

/* After MPI_Init: what the launcher's environment says about the number of ranks against
 * what MPI sees.  They differ where srun has no PMI that this MPI understands, or mpirun is
 * another MPI's: every process is then a world of its own.  0, or -1 with the reason reported. */
int launch_check(int world_size);

/* Runs this very program with argv on `nranks` ranks and returns what to exit with: 0 to 3 as
 * the first rank that ended badly has it, 128+N after a signal N to this process, 2 for a hostfile
 * that cannot be read, else 1.
 * A failure of mpirun or a rank killed by a signal is reported in one line, and so is a standard output that
 * does not take what ranks write (exit 1).  What ranks write on stdout and stderr is passed on, mpirun's own
 * remarks about ranks that ended are not.  A killed mpirun leaves no file and no process on this machine
 * (job_files.h), unless ranks run on others as well. */
int launch_exec(const struct launch *l, int argc, char **argv);

/* Columns of the terminal that stderr ends on, 0 if it is none.  A rank's own stderr is a
 * pipe and its stdout may be a pseudo-terminal: what launch_exec() saw is what counts. */
int launch_terminal(void);

/* Whether this process may say that all failed: it starts ranks, or is the first that another launcher started.  For ranks of
 * launch_exec() that process does, which has heard them all. */
bool launch_speaks(void);

#endif
