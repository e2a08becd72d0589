/* hybrid.h -- models whose blocks are of several kinds, each with one mixer behind one norm: Mamba-2, attention, an MLP or experts
 * (nemotron_h).
 *
 * The kinds are a family's reading of its config; which tensors each block has is laid out with the tensor table.  Where blocks with the same
 * tensors do not lie equally far apart in it they are of several *sorts*, as units of a recorded module are (recorded.h). */
#ifndef DPX_HYBRID_H
#define DPX_HYBRID_H

#include <stdbool.h>
#include <stdint.h>

struct model;

enum block_kind { BLOCK_MAMBA, BLOCK_ATTENTION, BLOCK_MLP, BLOCK_EXPERTS, NBLOCK_KIND };

/* Most blocks of such a model, and most sorts of them. */
enum { HYBRID_BLOCKS = 512, HYBRID_SORTS = 32 };

struct hybrid {
    int     refs;                       /* models that share it; __atomic */
    int     n;
    uint8_t kind[HYBRID_BLOCKS];        /* enum block_kind */
    int     first[HYBRID_BLOCKS + 1], ntensors[HYBRID_BLOCKS];      /* tensors of each; behind the last one */
    int     alike[HYBRID_BLOCKS], place[HYBRID_BLOCKS];             /* the first block of its sort; how many of the sort are before it */
    int     stride[HYBRID_BLOCKS];      /* of the first of a sort: how far apart they are; 0: there is one */
};

/* M: Mamba-2, *: attention, -: MLP, E: experts, as NemotronHConfig and Megatron-LM write them; NULL: a letter is of another kind, `other`, or there are too
 * many. */
struct hybrid *hybrid_of_pattern(const char *pattern, char *other);
char           hybrid_letter(enum block_kind kind);

struct hybrid *hybrid_share(struct hybrid *h);
void           hybrid_free(struct hybrid *h);

/* The kind of a block; of a model whose blocks have attention and an MLP BLOCK_ATTENTION.  How many are of a kind. */
enum block_kind hybrid_kind(const struct model *m, int64_t block);
int64_t         hybrid_blocks(const struct model *m, enum block_kind kind);
/* Blocks with attention, of any model. */
int64_t         hybrid_attending(const struct model *m);

/* Takes m's first m->layers blocks from `from` of its own on, with the tensors that m's table says.  0, or -1 reported. */
int hybrid_lay_out(struct model *m, int64_t from, const char *where);

#endif
