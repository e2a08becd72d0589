/* te_built.h -- block programs of Megatron-core's layers, for the tests of their bytes. */
#ifndef DPX_TE_BUILT_H
#define DPX_TE_BUILT_H

#include "tests/model/built.h"
#include "model/plan/local_model.h"
#include "model/plan/plan_groups.h"
#include "model/program/te_model.h"

static inline void start(struct built *x, const char *of, enum kernel_set k)
{
    built_start(x, of, STRAT_DDP, DIALECT_MEGATRON, DT_BF16, k);
    x->plan.micro_batch = 1;
    x->plan.parallel.tensor = 8;
    x->plan.parallel.sequence = true;
}

/* GPT-3 of 175 billion parameters (Brown et al. 2020; Korthikanti's Table 3), and Llama-3 70B. */
static inline void gpt3(struct built *x, enum kernel_set k)
{
    start(x, "{'model_type': 'gpt2', 'n_layer': 96, 'n_embd': 12288, 'n_head': 96, 'vocab_size': 51200, 'n_positions': 2048,"
             " 'activation_function': 'gelu_new', 'resid_pdrop': 0.1, 'embd_pdrop': 0.1, 'attn_pdrop': 0.1}", k);
    x->plan.seq = 2048;
    x->plan.dropout = 0.1;
}

static inline void llama70b(struct built *x, enum kernel_set k)
{
    start(x, "{'model_type': 'llama', 'num_hidden_layers': 80, 'hidden_size': 8192, 'intermediate_size': 28672, 'num_attention_heads': 64,"
             " 'num_key_value_heads': 8, 'vocab_size': 128256, 'max_position_embeddings': 8192, 'rms_norm_eps': 1e-5,"
             " 'tie_word_embeddings': false}", k);
    x->plan.seq = 8192;
}

static inline int64_t saved(struct built *x, enum piece_id piece)
{
    build(x);
    return x->program.piece[piece].saved;
}

static inline void is(int64_t got, int64_t want)
{
    if (got != want)
        print_error("%lld, not %lld\n", (long long)got, (long long)want);
    assert_int_equal(got, want);
}

/* A LayerNorm's mean and 1/sigma of each row, in fp32, twice in a block. */
static inline int64_t stats(int64_t rows) { return 2 * 2 * 4 * rows; }

/* What fused attention keeps beside its operands: a number for each row of each head, and the random generator's two. */
static inline int64_t lse(int64_t rows) { return 4 * rows + 512; }

/* Kernels of a name in a pass of a piece; *bytes grows by what they pass over. */
static inline int kernels_named(const struct built *x, enum piece_id piece, enum pass pass, const char *name, int64_t *bytes)
{
    const struct piece *p = &x->program.piece[piece];
    int n = 0;

    for (int k = 0; k < p->nkernels[pass]; k++)
        if (!strcmp(p->kernels[pass][k].name, name)) {
            n++;
            *bytes += p->kernels[pass][k].bytes;
        }
    return n;
}

/* What forward keeps, backward frees. */
static inline void check_nothing_stays(const struct built *x, const struct plan *p)
{
    int64_t net[NMEM] = { 0 };

    for (int64_t b = -2; b < p->model.layers; b++) {
        enum piece_id id = b == -2 ? PIECE_EMBED : b == -1 ? PIECE_HEAD : program_piece_of_block(p, b);
        for (int pass = 0; pass < NPASS; pass++) {
            struct span sp;
            program_span(&x->program, id, (enum pass)pass, 0, x->program.piece[id].nkernels[pass], GRADS_KEEP, &sp);
            for (int m = 0; m < NMEM; m++)
                net[m] += sp.net[m];
        }
    }
    for (int m = 0; m < NMEM; m++)
        is(net[m], 0);
}

/* Of a rank's model: nothing stays, and its tensors are handed out once each, from the half of the block that they are in; all modules are read. */
static inline void check_step(const struct built *x, const struct local_model *local)
{
    const struct plan *p = local->plan;

    check_nothing_stays(x, p);
    for (int piece = PIECE_EMBED; piece <= PIECE_HEAD; piece++) {
        const struct piece *of = &x->program.piece[piece];
        int n = program_ntensors(p, (enum piece_id)piece), seen[32] = { 0 };
        if (of->nkernels[PASS_BACKWARD] == 0)
            continue;
        for (int k = 0; k < of->nkernels[PASS_BACKWARD]; k++)
            for (int i = 0; i < 4 && of->kernels[PASS_BACKWARD][k].ready[i] >= 0; i++) {
                int tensor = of->kernels[PASS_BACKWARD][k].ready[i];
                assert_true(tensor < n);
                seen[tensor]++;
                if (piece_is_block((enum piece_id)piece))
                    assert_int_equal(p->model.tensors[program_tensor(p, (enum piece_id)piece, 0, tensor)].mlp_half,
                                     of->kernels[PASS_BACKWARD][k].half);
            }
        for (int i = 0; i < n; i++)
            assert_int_equal(seen[i], 1);
    }
}

#endif
