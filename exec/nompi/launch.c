/* launch.c -- launch.h without MPI: this process is the one rank there is. */
#include "exec/process/launch.h"

#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/fail.h"

bool launch_needed(void) { return false; }
void launch_tune_tcp(void) { }

/* Several processes of it would each be a world of their own. */
int launch_check(int world_size)
{
    static const char *const told[] = { "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS" };

    for (int i = 0; i < 3; i++) {
        const char *n = getenv(told[i]);
        if (n && atoi(n) > world_size)
            return fail("the launcher started %s processes, but this program was built without MPI (MPI=0), for one", n);
    }
    return 0;
}

int launch_exec(const struct launch *l, int argc, char **argv)
{
    (void)argc, (void)argv;
    fail("cannot start %d ranks: this program was built without MPI (MPI=0)", l->nranks);
    return 2;
}

int launch_terminal(void)
{
    struct winsize size;

    if (!isatty(2))
        return 0;
    return ioctl(2, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

bool launch_speaks(void) { return true; }
