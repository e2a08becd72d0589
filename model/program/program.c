/* program.c -- building block programs, and adding up segments of them.
 *
 * The torch programs come from running a model of two blocks on a tape: the second
 * block stands for every block, since the first one's input is special.  What the
 * first block does differently is moved to the embedding, so that the pieces add up
 * to zero over a whole step for any number of blocks. */
#include "model/program/program.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/hash.h"
#include "model/arch/packed.h"
#include "model/arch/training.h"
#include "model/family/family.h"
#include "model/family/hybrid.h"
#include "model/plan/attention.h"
#include "model/plan/local_share.h"
#include "model/program/program_graphs.h"
#include "model/program/program_internal.h"

/* ---- segments ---- */

/* What a kernel leaves of the gradients it made, under a fate. */
static int64_t grads_left(const struct kernel *k, enum grad_fate fate)
{
    switch (fate) {
    case GRADS_KEEP:     return k->net[MEM_GRADS];
    case GRADS_DROP:     return k->net[MEM_GRADS] - k->ready_bytes;
    case GRADS_IN_PLACE: break;
    }
    return 0;
}

static void measure(const struct program *g, enum piece_id piece, enum pass pass, int k0, int k1,
                    enum grad_fate fate, struct span *out)
{
    const struct piece *p = &g->piece[piece];
    int64_t top = 0;

    memset(out, 0, sizeof *out);
    assert(0 <= k0 && k0 <= k1 && k1 <= p->nkernels[pass]);
    for (int i = k0; i < k1; i++) {
        const struct kernel *k = &p->kernels[pass][i];
        int64_t at[NMEM], total = 0;
        for (int m = 0; m < NMEM; m++) {
            bool none = m == MEM_GRADS && fate == GRADS_IN_PLACE;
            at[m] = out->net[m] + (none ? 0 : k->peak[m]);
            total += at[m];
        }
        if (total > top) {
            top = total;
            memcpy(out->peak, at, sizeof at);
        }
        out->net[MEM_ACTIVATIONS] += k->net[MEM_ACTIVATIONS];
        out->net[MEM_TEMPORARIES] += k->net[MEM_TEMPORARIES];
        out->net[MEM_GRADS] += grads_left(k, fate);
        out->flops += k->flops;
        out->bytes += k->bytes;
    }
}

void program_span(const struct program *g, enum piece_id piece, enum pass pass,
                  int k0, int k1, enum grad_fate fate, struct span *out)
{
    if (k0 == 0 && k1 == g->piece[piece].nkernels[pass])
        *out = g->whole[piece][pass][fate];
    else
        measure(g, piece, pass, k0, k1, fate, out);
}

/* Of all that decides a kernel's time; names are static, so their addresses do. */
static uint64_t key_of(const struct kernel *k, int n)
{
    uint64_t h = hash_mix(HASH_BEGIN, (uint64_t)n);

    for (int i = 0; i < n; i++) {
        uint64_t flops;
        memcpy(&flops, &k[i].flops, sizeof flops);
        h = hash_mix(hash_mix(h, (uint64_t)(uintptr_t)k[i].name), (uint64_t)k[i].kind | (uint64_t)k[i].fn << 8 | (uint64_t)k[i].scaled << 16 |
                     (uint64_t)k[i].captured << 24 | (uint64_t)k[i].apart << 25 | (uint64_t)k[i].attends << 32 | (uint64_t)k[i].te_module << 40);
        h = hash_mix(hash_mix(h, (uint64_t)k[i].chunks), (uint64_t)k[i].adds);
        h = hash_mix(hash_mix(h, flops), (uint64_t)k[i].bytes);
        h = hash_mix(hash_mix(hash_mix(h, (uint64_t)k[i].m), (uint64_t)k[i].n), (uint64_t)k[i].k);
        h = hash_mix(hash_mix(hash_mix(h, (uint64_t)k[i].batch), (uint64_t)k[i].sums), (uint64_t)k[i].ready_bytes);
    }
    return h;
}

void program_measure(struct program *g)
{
    for (int i = 0; i < NPIECE; i++)
        for (int pass = 0; pass < NPASS; pass++) {
            struct piece *piece = &g->piece[i];
            piece->key[pass] = key_of(piece->kernels[pass], piece->nkernels[pass]);
            for (int fate = GRADS_KEEP; fate <= GRADS_IN_PLACE; fate++)
                measure(g, (enum piece_id)i, (enum pass)pass, 0, piece->nkernels[pass], (enum grad_fate)fate,
                        &g->whole[i][pass][fate]);
        }
}

static bool communicates(const struct piece *p, enum pass pass, int kernel)
{
    for (int i = 0; i < p->ncollectives[pass]; i++)
        if (p->collectives[pass][i].kernel == kernel)
            return true;
    return false;
}

/* Backward's kernels from `at` on that are named as forward's are, one after the other but for collectives that one of the two has alone;
 * *end: behind the last one. */
static int alike(const struct piece *p, int at, int *end)
{
    int n = 0, again = at;

    for (int k = 0; k < p->nkernels[PASS_FORWARD] && again < p->nkernels[PASS_BACKWARD];) {
        if (!strcmp(p->kernels[PASS_FORWARD][k].name, p->kernels[PASS_BACKWARD][again].name)) {
            k++;
            *end = ++again;
            n++;
        } else if (communicates(p, PASS_FORWARD, k)) {
            k++;
        } else if (communicates(p, PASS_BACKWARD, again)) {
            again++;
        } else {
            break;
        }
    }
    return n;
}

int program_again(const struct piece *p)
{
    int longest = 0, end = 0;

    for (int at = 0; at < p->nkernels[PASS_BACKWARD]; at++) {
        int here = 0, n = alike(p, at, &here);
        if (n > longest) {
            longest = n;
            end = here;
        }
    }
    return end;
}

int program_half(const struct program *g, enum piece_id piece, enum pass pass, int half)
{
    const struct piece *p = &g->piece[piece];

    for (int i = 0; i < p->nkernels[pass]; i++)
        if (p->kernels[pass][i].half == half)
            return i;
    return p->nkernels[pass];
}

/* ---- tensors ---- */

static bool embedding_gets_gradient(const struct plan *p)
{
    const struct model *m = &p->model;

    for (int i = model_next_tensor(m, TENSOR_EMBED, -1); i >= 0; i = model_next_tensor(m, TENSOR_EMBED, i))
        if (plan_gets_gradient(p, &m->tensors[i]))
            return true;
    return false;
}

bool program_input_requires_grad(const struct plan *p)
{
    if (!recompute_whole(p->recompute) || p->kernels == KERNELS_DPX || p->parallel.inputs_apart)    /* NeMo Automodel calls neither */
        return false;
    return training_is_lora(&p->train)
        || (p->dialect == DIALECT_DEEPSPEED && !training_is_all(&p->train) && !embedding_gets_gradient(p));
}

/* A stage behind the first one is handed its input by another, which wants its gradient. */
static bool is_later_stage(const struct plan *p)
{
    return p->parallel.pipeline > 1 && model_next_tensor(&p->model, TENSOR_EMBED, -1) < 0;
}

/* Is the first block handed 16 bits, the others fp32?  Under autocast a LayerNorm gives fp32: blocks that end with one do, and those with
 * bitsandbytes' layers, which return what they were given (Linear4bit.forward(): ".to(inp_dtype)"). */
static bool blocks_widen(const struct plan *p)
{
    const struct recipe r = plan_recipe(p);
    const struct family *f = family_for(&p->model);
    bool packed = p->train.base == BASE_INT8 || packed_nf4(p->train.base);

    if (r.autocast && packed && dtype_bytes(r.frozen) == 2 && p->model.act == ACT_RELU2)        /* its square is in fp32 */
        return true;
    if (!r.autocast || p->model.norm != NORM_LAYER || f->centred_by_hand || f->layer_norm_1p)
        return false;
    return p->model.norm_place == NORM_OF_SUM || (packed && dtype_bytes(r.frozen) == 2);
}

bool program_first_differs(const struct plan *p)
{
    return !is_later_stage(p) && !training_is_all(&p->train) &&
           (blocks_widen(p) || (!program_input_requires_grad(p) && !embedding_gets_gradient(p)));
}

/* --recompute-method block. */
static bool first_of_chunks(const struct plan *p)
{
    return p->recompute == RECOMPUTE_FULL && p->megatron.recompute_num_layers > 0;
}

bool program_recomputes_all(const struct plan *p)
{
    return p->recompute != RECOMPUTE_NONE && p->recompute_interval == 1 && !first_of_chunks(p);
}

/* The places of a plan's blocks in their chunks. */
static int64_t place_in_chunk(const struct plan *p, int64_t b)
{
    int64_t stages = p->parallel.pipeline > 1 ? p->parallel.pipeline * p->parallel.virtual_stages : 1;

    for (int64_t s = 0; s < stages; s++) {
        struct local_stage of = local_share_stage_of(p, stages, s);
        if (b < of.first + of.blocks)
            return b - of.first;
    }
    return b;
}

int64_t program_recomputed_blocks(const struct plan *p)
{
    int64_t stages = p->parallel.pipeline > 1 ? p->parallel.pipeline * p->parallel.virtual_stages : 1, n = 0;

    if (p->recompute == RECOMPUTE_NONE)
        return 0;
    if (!first_of_chunks(p))
        return ceil_div(p->model.layers, p->recompute_interval > 0 ? p->recompute_interval : 1);
    for (int64_t s = 0; s < stages; s++) {
        int64_t blocks = local_share_stage_of(p, stages, s).blocks;
        n += blocks < p->megatron.recompute_num_layers ? blocks : p->megatron.recompute_num_layers;
    }
    return n;
}

bool program_attends_twice(const struct plan *p)
{
    int64_t windowed = model_windowed_layers(&p->model);

    return attention_mixed(p) || (family_for(&p->model)->complex_rotary && windowed > 0 && windowed < p->model.layers);
}

/* Blocks without experts are alike (experts_check.c). */
bool program_piece_windowed(const struct plan *p, enum piece_id id)
{
    int64_t first = 0;

    if (id != PIECE_DENSE && id != PIECE_DENSE_RECOMPUTED)
        return id == PIECE_WINDOWED || id == PIECE_WINDOWED_RECOMPUTED;
    while (first < p->model.layers - 1 && model_has_experts(&p->model, first))
        first++;
    return model_windowed(&p->model, first);
}

/* fp8_utils.py, is_first_last_bf16_layer(). */
bool program_unscaled(const struct plan *p, int64_t b)
{
    const struct megatron_options *o = &p->megatron;

    return o->first_last_layers_bf16 && plan_scaled(p) != SCALED_NONE &&
           (b < o->num_layers_at_start_in_bf16 || b >= p->model.layers - o->num_layers_at_end_in_bf16);
}

enum piece_id program_piece_of_block(const struct plan *p, int64_t b)
{
    if (p->model.recorded)
        return program_recorded_piece(p, b);
    return program_piece_in_chunk(p, b, first_of_chunks(p) ? place_in_chunk(p, b) : b);
}

enum piece_id program_piece_in_chunk(const struct plan *p, int64_t b, int64_t in_chunk)
{
    bool recomputed = p->recompute != RECOMPUTE_NONE &&
                      (first_of_chunks(p) ? in_chunk < p->megatron.recompute_num_layers : b % p->recompute_interval == 0);

    return b == 0 && program_first_differs(p) ? (recomputed ? PIECE_FIRST_RECOMPUTED : PIECE_FIRST) : program_kind_of_block(p, b, recomputed);
}

enum piece_id program_kind_of_block(const struct plan *p, int64_t b, bool recomputed)
{
    if (p->model.hybrid)
        return (enum piece_id)(PIECE_MIXER + 4 * (int)hybrid_kind(&p->model, b) + 2 * program_unscaled(p, b) + recomputed);
    if (model_blocks_differ(&p->model) && !model_has_experts(&p->model, b))
        return recomputed ? PIECE_DENSE_RECOMPUTED : PIECE_DENSE;
    if (program_unscaled(p, b))
        return recomputed ? PIECE_UNSCALED_RECOMPUTED : PIECE_UNSCALED;
    if (program_attends_twice(p) && model_windowed(&p->model, b))
        return recomputed ? PIECE_WINDOWED_RECOMPUTED : PIECE_WINDOWED;
    return recomputed ? PIECE_BLOCK_RECOMPUTED : PIECE_BLOCK;
}

static int64_t gcd(int64_t a, int64_t b) { return b ? gcd(b, a % b) : a; }

int program_period(const struct plan *p)
{
    const struct model *m = &p->model;
    int64_t every = p->recompute == RECOMPUTE_NONE ? 1 : p->recompute_interval;

    if (m->recorded)
        return program_recorded_period(p, &(int){ 0 });
    if (program_attends_twice(p))
        every = m->window_from > 0 ? m->layers : every / gcd(every, m->full_every) * m->full_every;
    if (model_blocks_differ(m))
        every = every / gcd(every, m->moe_every) * m->moe_every;
    if (m->hybrid || first_of_chunks(p) || program_unscaled(p, 0) || program_unscaled(p, m->layers - 1))
        every = m->layers;
    return (int)(every < m->layers ? every : m->layers);
}

int program_alone(const struct plan *p)
{
    int alone = 0;

    if (p->model.recorded)
        program_recorded_period(p, &alone);
    else if (model_blocks_differ(&p->model))
        alone = (int)p->model.dense_first;
    return alone;
}

/* A block of the piece: `block` itself where it is of the piece's kind, else the first that is. */
static int64_t of_kind(const struct plan *p, enum piece_id piece, int64_t block)
{
    if (!p->model.hybrid || !piece_has_mixer(piece) || hybrid_kind(&p->model, block) == piece_mixer(piece))
        return block;
    for (block = 0; block < p->model.layers - 1 && hybrid_kind(&p->model, block) != piece_mixer(piece); block++)
        ;
    return block;
}

static int block_of(enum piece_id piece)
{
    return piece == PIECE_EMBED ? TENSOR_EMBED : piece == PIECE_HEAD || piece == PIECE_HEAD_SPLIT ? TENSOR_HEAD : 0;
}

int program_ntensors(const struct plan *p, enum piece_id piece)
{
    int block = block_of(piece), n = 0;

    if (p->model.recorded)
        return program_recorded_ntensors(p, piece);
    if (block >= 0 && p->model.hybrid)
        return model_block_tensors(&p->model, of_kind(p, piece, 0));
    if (block >= 0)
        return piece == PIECE_DENSE || piece == PIECE_DENSE_RECOMPUTED ? p->model.per_dense : p->model.per_block;
    for (int i = model_next_tensor(&p->model, block, -1); i >= 0; i = model_next_tensor(&p->model, block, i))
        n++;
    return n;
}

int program_tensor(const struct plan *p, enum piece_id piece, int64_t block, int i)
{
    const struct model *m = &p->model;

    if (m->recorded)
        return program_recorded_tensor(p, piece, block, i);
    if (block_of(piece) >= 0)
        return model_block_first(m, of_kind(p, piece, block)) + i;
    for (int j = model_next_tensor(m, block_of(piece), -1); j >= 0; j = model_next_tensor(m, block_of(piece), j))
        if (i-- == 0)
            return j;
    assert(!"no such tensor in this piece");
    return -1;
}

/* ---- building ---- */

int piece_take(struct piece *out, enum pass pass, const struct kernel *k, int n)
{
    out->kernels[pass] = malloc((size_t)(n ? n : 1) * sizeof *k);
    if (!out->kernels[pass])
        return fail("out of memory for a block program");
    if (n)
        memcpy(out->kernels[pass], k, (size_t)n * sizeof *k);
    out->nkernels[pass] = n;
    out->flops[pass] = 0;
    out->copied[pass] = 0;
    if (pass == PASS_FORWARD)
        out->saved = out->pinned = 0;
    for (int i = 0; i < n; i++) {
        out->flops[pass] += k[i].flops;
        out->copied[pass] += k[i].copied;
        if (pass == PASS_FORWARD) {
            out->saved += k[i].net[MEM_ACTIVATIONS];
            out->pinned += k[i].pinned;
        }
    }
    return 0;
}

int piece_collectives(struct piece *out, enum pass pass, const struct collective *of)
{
    int n = 0;

    for (int i = 0; i < out->nkernels[pass]; i++)
        n += out->kernels[pass][i].collective > 0;
    out->collectives[pass] = malloc((size_t)(n + 1) * sizeof *of);
    if (!out->collectives[pass])
        return fail("out of memory for a block program");
    out->ncollectives[pass] = 0;
    for (int i = 0; i < out->nkernels[pass]; i++)
        if (out->kernels[pass][i].collective > 0) {
            struct collective *c = &out->collectives[pass][out->ncollectives[pass]++];
            *c = of[out->kernels[pass][i].collective - 1];
            c->needed += i - c->kernel;
            c->kernel = i;
        }
    return 0;
}

int piece_places(struct piece *out, enum pass pass, const struct place *places)
{
    int n = out->nkernels[pass], first = n ? out->kernels[pass][0].place0 : 0, all = 0;

    for (int i = 0; i < n; i++) {
        out->kernels[pass][i].place0 -= first;
        all += out->kernels[pass][i].nplaces;
    }
    out->places[pass] = malloc((size_t)(all + 1) * sizeof *places);
    if (!out->places[pass])
        return fail("out of memory for a block program");
    memcpy(out->places[pass], places + first, (size_t)all * sizeof *places);
    return 0;
}

void piece_give_pass(struct piece *from, enum pass pass, struct piece *to)
{
    to->split = from->split;
    to->kernels[pass] = from->kernels[pass];
    to->nkernels[pass] = from->nkernels[pass];
    to->places[pass] = from->places[pass];
    to->collectives[pass] = from->collectives[pass];
    to->ncollectives[pass] = from->ncollectives[pass];
    to->flops[pass] = from->flops[pass];
    from->kernels[pass] = NULL;
    from->places[pass] = NULL;
    from->collectives[pass] = NULL;
}

void program_free(struct program *g)
{
    for (int i = 0; i < NPIECE; i++)
        for (int pass = 0; pass < NPASS; pass++) {
            free(g->piece[i].kernels[pass]);
            free(g->piece[i].places[pass]);
            free(g->piece[i].collectives[pass]);
            free(g->piece[i].moves[pass]);
        }
    memset(g->piece, 0, sizeof g->piece);       /* program_measure() sets all of whole[], which is long */
    memset(g->returns, 0, sizeof g->returns);
    memset(g->heads, 0, sizeof g->heads);
    memset(&g->boundary, 0, sizeof *g - offsetof(struct program, boundary));
}

/* The largest products of sizes that a program forms. */
static bool fits_64_bits(const struct plan *p)
{
    const struct model *m = &p->model;
    const int64_t width[] = { m->hidden, m->vocab, m->ffn, m->heads * m->head_dim, m->positions,
                              m->experts_used * (2 * m->expert_ffn + m->hidden) + m->experts, m->heads * m->value_dim, m->shared_ffn,
                              2 * (m->ssm_heads * m->ssm_head_dim + m->ssm_groups * m->ssm_state) + m->ssm_heads, m->ssm_heads * m->ssm_chunk };
    int64_t tokens, scores;

    if (!checked_mul(p->micro_batch, p->seq, &tokens) || !checked_mul(tokens, m->heads, &scores) ||
        !checked_mul(scores, p->seq, &scores))
        return false;
    for (size_t i = 0; i < sizeof width / sizeof *width; i++) {
        int64_t n;
        if (!checked_mul(tokens, 4 * width[i], &n))
            return false;
    }
    return true;
}

/* What a pipeline needs beside. */
static int add_stages(const struct plan *whole, const struct local_model *local, struct program *out)
{
    if (program_add_edges(whole, out) < 0)
        return -1;
    if (whole->megatron.defer_embedding_wgrad_compute)
        return program_add_deferred(out);
    if (!pipeline_splits(whole->parallel.pipeline_schedule))
        return 0;
    return whole->kernels == KERNELS_DPX ? program_add_split_dpx(local, out) : program_add_split(whole, out);
}

/* Of one rank of the plan with one stage and its positions alone. */
static int build_for(const struct plan *whole, const struct plan *p, int64_t rank, struct program *out)
{
    struct local_model local;

    if (local_model_of(p, rank, &local) < 0)
        return -1;
    bool stages = whole->parallel.pipeline > 1;
    int rc = p->model.recorded ? program_build_recorded(&local, out) : p->kernels == KERNELS_DPX ? program_build_dpx(&local, stages, out) : program_build_torch(&local, stages, out);
    if (rc == 0 && stages)
        rc = add_stages(whole, &local, out);
    local_model_free(&local);
    if (rc < 0) {
        program_free(out);
        return rc;
    }
    for (int i = 0; i < NPIECE; i++)
        out->ncollectives += out->piece[i].ncollectives[PASS_FORWARD] + out->piece[i].ncollectives[PASS_BACKWARD];
    out->flash = attention_flash(p);
    out->cuda_12_8 = plan_has_cuda_12_8(p);
    program_mark_graphs(whole, out);
    program_measure(out);
    return 0;
}

/* What all blocks keep, and the most that one of them takes. */
static int64_t most_in_blocks(const struct plan *p, const struct program *g)
{
    int64_t most = 0, kept = 0;

    for (int64_t b = 0; b < p->model.layers; b++)
        kept += g->piece[program_piece_of_block(p, b)].saved;
    for (int i = PIECE_BLOCK; i < PIECE_HEAD; i++)
        for (int pass = 0; pass < NPASS; pass++) {
            const int64_t *peak = g->whole[i][pass][GRADS_KEEP].peak;
            int64_t sum = peak[MEM_ACTIVATIONS] + peak[MEM_TEMPORARIES] + peak[MEM_GRADS];
            most = sum > most ? sum : most;
        }
    return kept + most;
}

/* Of a context group's ranks that which counts: without balance the last one has most to do; with it they have as much to do,
 * and the first meets others' keys with half of its queries, the last all queries with half of the keys: the fuller one. */
static int build_in_context(const struct plan *whole, const struct plan *p, struct program *out)
{
    int64_t last = (p->parallel.context - 1) * (p->parallel.tensor > 1 ? p->parallel.tensor : 1);
    struct program first = { 0 };

    if (build_for(whole, p, last, out) < 0)
        return -1;
    if (!p->parallel.context_balance)
        return 0;
    if (build_for(whole, p, 0, &first) < 0) {
        program_free(out);
        return -1;
    }
    bool fuller = most_in_blocks(p, &first) > most_in_blocks(p, out);
    struct program kept = fuller ? first : *out, other = fuller ? *out : first;
    program_free(&other);
    *out = kept;
    return 0;
}

int program_build(const struct plan *p, struct program *out)
{
    struct plan one_stage = *p;         /* which has every piece, and a context rank's positions */
    bool untied = p->dialect == DIALECT_DEEPSPEED && p->parallel.pipeline > 1 && p->model.tied;

    one_stage.parallel.pipeline = 1;
    one_stage.seq = plan_rank_seq(p);
    program_free(out);
    if (!fits_64_bits(p))
        return fail("the activations of this plan exceed 2^60 elements: reduce micro_batch, seq or the model");
    if (untied && local_share_untied(&p->model, &one_stage.model) < 0)
        return -1;
    int rc = p->parallel.context > 1 && p->kernels != KERNELS_DPX ? build_in_context(p, &one_stage, out) : build_for(p, &one_stage, 0, out);
    if (untied)
        model_free(&one_stage.model);
    return rc;
}

bool program_saves_on_host(const struct plan *p)
{
    bool all = p->activation_offload == OFFLOAD_SAVE_ON_CPU || p->activation_offload == OFFLOAD_SAVE_ON_CPU_PINNED;

    return all && p->kernels != KERNELS_DPX;
}

double program_flops(const struct program *g, const struct plan *p, bool causal)
{
    double total = 0;

    for (int64_t b = -2; b < p->model.layers; b++) {
        enum piece_id id = b == -2 ? PIECE_EMBED : b == -1 ? PIECE_HEAD : p->model.recorded ? program_recorded_piece(p, b)
                         : p->model.hybrid ? program_kind_of_block(p, b, false) : PIECE_BLOCK;
        assert(g->piece[id].nkernels[PASS_FORWARD] > 0);        /* a block that runs again is none that runs once (program_torch.c) */
        for (int pass = 0; pass < NPASS; pass++)
            for (int i = 0; i < g->piece[id].nkernels[pass]; i++) {
                const struct kernel *k = &g->piece[id].kernels[pass][i];
                total += causal && k->kind == KC_ATTENTION ? k->flops / 2 : k->flops;
            }
    }
    return total;
}
