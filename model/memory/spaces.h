/* spaces.h -- bytes that a plan holds outside of device memory, and whether its nodes have that much.
 *
 * Ranks of a node share its DRAM and its disks.  Host memory is counted by nodes: the sum over the ranks of the
 * fullest node, each at the most that it allocates at once.  SPACE_HOST is all of a node's DRAM here, pinned buffers
 * included (and device memory where ranks are processes on cores); SPACE_PINNED is the pinned part of it.  The page
 * cache is in none of them: the kernel takes it back. */
#ifndef DPX_SPACES_H
#define DPX_SPACES_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "model/lower/lower.h"

struct space_account {
    int64_t peak, available;    /* of the fullest node, and what a node has for it */
    int64_t rank_peak;          /* of its fullest rank */
    bool    used, fits;
    bool    powers_of_two;      /* every allocation in it is one: PyTorch's pinned blocks */
};

struct space_accounts { struct space_account of[NSPACE]; };     /* SPACE_DEVICE: unused, memory_verdict has it */

/* `ranks`: one of each kind, lower_ranks(); `s` is scratch, and lowered for some rank afterwards.  `device`: bytes
 * that a rank holds in device memory, which count where that is the host's.  0, or -1 with the reason reported: a
 * figure of the cluster that is not known. */
int spaces_account(const struct plan *p, const struct program *g, struct schedules *s, const int64_t *ranks, int n,
                   int64_t device, struct space_accounts *out);

/* The two halves of spaces_account().  Adds `ranks` ranks with these schedules to their node; then the verdict. */
void spaces_add(const struct schedules *s, int64_t ranks, struct space_accounts *node);
int  spaces_judge(const struct cluster *c, int64_t device, struct space_accounts *a);

/* The first space that is short (enum space), or -1. */
int spaces_short(const struct space_accounts *a);

/* Every space that is short: "host memory of a node: needs 412 GiB of 384 GiB, pinned buffers rounded to powers of two
 * are 96 GiB of it"; empty when none is. */
void spaces_why_not(const struct space_accounts *a, char *to, int size);

/* [{"space", "peak_bytes", "available_bytes", "per"}], the device's row first (new reference). */
json_t *spaces_json(const struct space_accounts *a, int64_t device_peak, int64_t device_available);

#endif
