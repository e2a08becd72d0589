/* job_files.h -- where Open MPI keeps the files of one job on this machine: folders of the job's own.
 *
 *     struct job_files f;
 *     job_files_make(&f);                     (before mpirun is started: it goes by environment)
 *     job_files_started(&f, mpirun);
 *     ...
 *     job_files_end(&f, killed);              (after mpirun has ended)
 *
 * mpirun removes its session folder and the ranks' shared memory (4 MiB each) itself, unless it was killed:
 * then both stay, under names that only Open MPI can tell from another job's.  Below a folder that was made for
 * this job alone everything is this job's.  The folders are removed by a process of their own, the keeper, which
 * waits for the end of the one that made them: so they go as well when that one is killed. */
#ifndef DPX_JOB_FILES_H
#define DPX_JOB_FILES_H

#include <stdbool.h>

#include <sys/types.h>

enum { JOB_SESSION, JOB_SHARED, NJOB_FOLDER };

struct job_files {
    char  folder[NJOB_FOLDER][512];     /* "": there is none */
    char *before[NJOB_FOLDER][2];       /* the parameters, to be put back */
    pid_t keeper;
    int   to_keeper;                    /* its end is the end of this process */
};

/* Makes the folders, below the ones that Open MPI would use (a setting of the user's is kept so), and sets its
 * parameters.  Where one cannot be made, Open MPI's default stays. */
void job_files_make(struct job_files *f);

/* Which process must have ended before the folders may go. */
void job_files_started(const struct job_files *f, pid_t mpirun);

/* Removes the folders, puts the environment back.  `killed`: mpirun was, and its ranks, which have become children
 * of this process (job_files_make() saw to it), end by themselves or, two seconds later, by SIGKILL. */
void job_files_end(struct job_files *f, bool killed);

#endif
