/* same_run.h -- before the first step: are all ranks about to run the same thing?
 *
 *     json_t *mine = ...;                             (what must be the same, under names that the user knows)
 *     json_object_set_new(mine, "--init", same_run_file(path));
 *     if (same_run_check(MPI_COMM_WORLD, mine) < 0)   (every rank)
 *
 * Ranks of different learning rates, seeds or first weights train a blend of them that no single-process run
 * gives, and nothing fails.  Ranks differ where nodes have different files under one path, or where mpirun was
 * given different command lines.
 *
 * A file is compared by its size and by XXH64 over equal parts of it: the whole file up to 64 MiB, else 257 blocks of
 * 256 KiB at equal distances, the first and the last ones (headers are in the first) included.  So another
 * checkpoint or corpus is found for certain; of one large file, a change that lies between the blocks is not.  Neither
 * path nor time stamp counts: a copy is the same file.  Every rank reads at most 64.25 MiB for it, whatever
 * the file's size. */
#ifndef DPX_SAME_RUN_H
#define DPX_SAME_RUN_H

#include <jansson.h>
#include <mpi.h>

/* {"bytes", "hash"}; where it cannot be read, the reason as a string (and nothing on stderr); NULL gives null. */
json_t *same_run_file(const char *path);

/* Compares the documents.  0, or -1 on every rank; rank 0 has then reported the first rank that differs from it,
 * the first member that does, and both values. */
int same_run_check(MPI_Comm comm, const json_t *mine);

/* Refuses what differs from another run: names the first member that differs and both values, "CHECKPOINT: --lr was 0.001, is 0.002".
 * 0: nothing differs; -1 reported. */
int same_run_as(const char *other, const json_t *was, const json_t *now);

#endif
