/* local_share.h -- which rows, columns and blocks of a model are one rank's, by tensor and by pipeline
 * parallelism.
 *
 *     struct local_share s = local_share_whole(&model);
 *     s.tensor_ranks = 8;
 *     if (local_share_model(&model, &s, &mine, partial) < 0) ...
 *     model_free(&mine); */
#ifndef DPX_LOCAL_SHARE_H
#define DPX_LOCAL_SHARE_H

#include "model/arch/transformer.h"
#include "model/cluster/mesh.h"
#include "model/plan/plan.h"

/* Blocks first to first + blocks - 1 of a model: a stage of a pipeline. */
struct local_stage { int64_t first, blocks; };

/* One rank's share of a model. */
struct local_share {
    int64_t tensor_ranks, tensor_rank;
    int     nchunks;                    /* stages that the rank has, in the order of its chunks */
    struct local_stage chunk[PLAN_MAX_CHUNKS];
    bool    embeds, heads;              /* it has the embedding; the final norm and the head */
    bool    sequence;                   /* what is not cut by tensors runs on a share of the positions */
    int64_t vocab;                      /* of the whole model: ceil(vocab / tensor_ranks) rows a rank, the last fewer */
    int64_t context_ranks, context_rank;    /* that share each sample's positions */
    int64_t expert_ranks, expert_rank;      /* that share out each block's experts, as many for each */
    int64_t expert_cut;                     /* tensor-parallel ranks that cut each expert's width */
    bool    whole_table;                /* the token embedding is not cut (DeepSpeed's AutoTP) */
    bool    copy_first;                 /* the copy of a tied embedding is before all other tensors (PipelineModule's tied_modules) */
    bool    untied;                     /* a rank with embedding and head has a copy, too */
    bool    heads_alone;                /* nothing adds up norms of q and k over the heads of all ranks (NeMo Automodel without sequence parallelism) */
};

/* All of it. */
struct local_share local_share_whole(const struct model *m);

/* The model's number of a block that the rank numbers by itself. */
int64_t local_share_block(const struct local_share *s, int64_t own);

/* Why a model cannot be cut over so many tensor-parallel ranks: static; NULL: it can. */
const char *local_share_refused(const struct model *m, int64_t tensor_ranks);

/* A plan's share: what its rank has, by its digits on the axes of tensors and of the pipe.  The plan has passed
 * plan_check(). */
struct local_share local_share_of(const struct plan *p, int64_t rank);

/* Whether tensors like this one are cut by tensor parallelism; the others every rank has whole. */
bool local_share_is_cut(const struct tensor *t);

/* Which rows (dim 0) or columns (dim 1) of a whole tensor are a rank's, in its own order: runs of them, since fused tensors hold
 * several projections.  dim -1: all of it. */
struct local_cut { int dim, nruns; struct { int64_t from, n; } run[3]; };
struct local_cut local_share_cut(const struct model *whole, const struct tensor *t, const struct local_share *share);

/* The positions of each sample that a rank has: `runs` times `run` of them, the i-th from first[i] on, in this order.  With
 * parallel.context_balance the context's rank r of c has chunks r and 2c - 1 - r of 2c (head and tail), else chunk r of c. */
struct local_positions { int runs; int64_t run, first[2]; };
struct local_positions local_share_positions(const struct plan *p, const struct local_share *s);

/* Which of a rank's queries see which keys of the rank `step` before it in the ring, both numbered as they lie there: those from
 * `from` on the first `keys`; at step 0 (causal) each those up to itself. */
struct local_sight { int64_t from, keys; bool causal; };
struct local_sight local_share_sight(const struct plan *p, const struct local_share *s, int64_t step);

/* The model that one rank computes, its chunks' blocks one after the other.  Column parallel, by output features: q, k, v, gate and up, with their biases, and
 * the head; row parallel, by input features: attention's output and down, whose biases every rank has; tokens
 * by rows of the vocabulary, ceil(V/T) a rank and the last one fewer; all else is whole on every rank
 * (Megatron-LM core/tensor_parallel/layers.py; torchtitan's plans).  Where two stages share a tied pair, the
 * last has a copy.  Bit MESH_AXIS(a) of partial[t] (room for m->ntensors + 1): a rank's gradient of out's
 * tensor t is a part of a sum over axis a.  0, or -1 reported; model_free(out). */
int local_share_model(const struct model *m, const struct local_share *share, struct model *out, uint8_t *partial);

/* A tied model with a copy of its embedding as head: what the stages of DeepSpeed's pipeline compute.  As local_share_model(). */
int local_share_untied(const struct model *m, struct model *out);

/* Blocks of one of `stages` stages.  The first and the last have first_less and last_less fewer than an even part,
 * in place of the embedding and the head (torchtitan's pipeline_parallel_first_stage_less_layers; with 1
 * Megatron's account_for_embedding_in_pipeline_split).  -1 blocks: the stage has fewer than that. */
struct local_stage local_share_stage(int64_t layers, int64_t stages, int64_t stage, int64_t first_less,
                                     int64_t last_less);

/* The same of a plan's stages: its layout's, or as even as its keys leave them.  A layout that does not fit is even. */
struct local_stage local_share_stage_of(const struct plan *p, int64_t stages, int64_t stage);

#endif
