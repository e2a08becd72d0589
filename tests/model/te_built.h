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

#endif
