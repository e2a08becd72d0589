/* lack.h -- which memory a plan lacks, by how much, and whether more GPUs are enough.
 *
 *     struct lack l;
 *     if (lack_of(&plan, &evaluation, &l)) {
 *         lack_words(&l, words, sizeof words);         "needs 26.85 GiB of ... usable, 1.2 GiB too much"
 *         lack_more_gpus(&plan, &options, knob_label, words, sizeof words);        "use 16 GPUs" */
#ifndef DPX_LACK_H
#define DPX_LACK_H

#include "model/memory/evaluate.h"
#include "sim/search/search.h"

/* What decides: bytes allocated, or a request that PyTorch's allocator could not serve, or a node's memory.  Where
 * that allocator is known the headroom may be used. */
struct lack {
    enum space space;           /* SPACE_DEVICE: of a rank; others: of a node */
    bool       card, reserved;  /* of all of the card; by what is reserved */
    int64_t    needed, available;       /* needed where reserved: available and the request that found no room */
    int64_t    usable;          /* of a GPU, headroom left free: the one capacity that people are told */
    int64_t    refused, taken;  /* where reserved: that request, and what would be reserved if there were room */
    double     headroom;        /* share of more memory that stays free */
    char       nodes[200];      /* what a node lacks, in words; "" nothing */
};

/* false: it fits.  Device memory comes first where several are short. */
bool lack_of(const struct plan *p, const struct evaluation *e, struct lack *out);

/* "needs 78.92 GiB of 74.31 GiB usable, 416.02 MiB more than the whole card"; and "437.91 MiB more memory a GPU". */
void lack_words(const struct lack *l, char *to, size_t size);
void lack_more_words(const struct lack *l, char *to, size_t size);

/* Whether more GPUs, each with the same share of the batch, hold the plan, or as much of it as the options allow (NULL: all) with full
 * recompute and everything sharded: "use 16 GPUs", "use 16 GPUs, as fsdp torch b1, recompute full", or what helps
 * where none of these numbers does.  `name` says the plan (knob_label(), or words).  Nodes are doubled up to LACK_MOST_GPUS. */
enum { LACK_MOST_GPUS = 1024 };
void lack_more_gpus(const struct plan *p, const struct search_options *o, void (*name)(const struct plan *p, char *to, size_t size), char *to, size_t size);

#endif
