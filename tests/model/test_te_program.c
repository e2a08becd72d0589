/* The block programs of Megatron-core's layers, in bytes: Korthikanti et al. 2022 (arXiv 2205.05198), Table 2 and Figure 7, by counting;
 * the collectives and what they run beside, by megatron/core/tensor_parallel/layers.py. */
#include "tests/model/te_built.h"

#include "model/plan/megatron_check.h"

#define SBH INT64_C(25165824)           /* 2048 * 12288 */

/* Vector 22: 34 + 5as/h = 114 bytes an element of sbh, of which norms, residuals and dropout's masks are 10. */
static void korthikantis_table_2(void **state)
{
    struct built x;

    (void)state;
    gpt3(&x, KERNELS_MEGATRON_LOCAL);
    is(saved(&x, PIECE_BLOCK), 114 * SBH / 8 + stats(2048 / 8));
    x.plan.parallel.sequence = false;
    is(saved(&x, PIECE_BLOCK), 578813952 + stats(2048));        /* 10 + 24/8 + 80/8 */
    x.plan.parallel.tensor = 1;
    is(saved(&x, PIECE_BLOCK), INT64_C(2868903936) + stats(2048));
    x.plan.parallel.tensor = 8;
    x.plan.parallel.sequence = true;
    x.plan.recompute = RECOMPUTE_SELECTIVE;
    is(saved(&x, PIECE_BLOCK_RECOMPUTED), 106954752 + stats(2048 / 8));     /* 34/8 */
    x.plan.recompute = RECOMPUTE_FULL;
    is(saved(&x, PIECE_BLOCK_RECOMPUTED), 50331648 / 8);
    x.plan.parallel.sequence = false;
    is(saved(&x, PIECE_BLOCK_RECOMPUTED), 50331648);
    finish(&x);
}

/* Fused attention keeps what selective recompute keeps, and a number for each row. */
static void transformer_engine_keeps_34_bytes(void **state)
{
    struct built x;

    (void)state;
    gpt3(&x, KERNELS_TE);
    is(saved(&x, PIECE_BLOCK), 34 * SBH / 8 + stats(2048 / 8) + lse(2048 * 96 / 8));
    x.plan.recompute = RECOMPUTE_SELECTIVE;
    is(saved(&x, PIECE_BLOCK_RECOMPUTED), 34 * SBH / 8 + stats(2048 / 8));
    x.plan.recompute = RECOMPUTE_NONE;
    x.plan.dropout = 0;                 /* two masks of a byte fewer */
    is(saved(&x, PIECE_BLOCK), 32 * SBH / 8 + stats(2048 / 8) + lse(2048 * 96 / 8));
    finish(&x);
}

/* Unfused, Transformer Engine's attention keeps the 5as/h of the paper too, without dropout 2as/h; of fewer heads of keys it keeps copies for
 * each head of queries. */
static void unfused_attention_keeps_the_scores(void **state)
{
    const int64_t sbh = INT64_C(8192) * 8192, sbf = INT64_C(8192) * 28672, scores = INT64_C(64) * 8192 * 8192;
    struct built x;

    (void)state;
    gpt3(&x, KERNELS_TE);
    x.plan.megatron.attention_backend = BACKEND_UNFUSED;
    is(saved(&x, PIECE_BLOCK), 114 * SBH / 8 + stats(2048 / 8));
    x.plan.dropout = 0;
    is(saved(&x, PIECE_BLOCK), (32 + 2 * 16) * SBH / 8 + stats(2048 / 8));
    finish(&x);
    llama70b(&x, KERNELS_TE);
    x.plan.megatron.attention_backend = BACKEND_UNFUSED;
    is(saved(&x, PIECE_BLOCK), (8 * sbh + 2 * 3 * sbh + 2 * sbh + 4 * sbf + 2 * sbf + 2 * scores) / 8 + stats(8192 / 8) / 2);
    finish(&x);
}

/* x and norm(x) twice; q, k, v, of which keys and values are 1/8 each as large as q; attention's output; gate and up; their product. */
static void a_llama_block_keeps(void **state)
{
    const int64_t sbh = INT64_C(8192) * 8192, sbf = INT64_C(8192) * 28672;
    struct built x;

    (void)state;
    llama70b(&x, KERNELS_TE);
    is(saved(&x, PIECE_BLOCK), (8 * sbh + 2 * (sbh + sbh / 4) + 2 * sbh + 4 * sbf + 2 * sbf) / 8 + stats(8192 / 8) / 2 + lse(8192 * 64 / 8));
    x.plan.megatron.bias_swiglu_fusion = false;     /* silu's result beside gate, up and their product */
    is(saved(&x, PIECE_BLOCK), (8 * sbh + 2 * (sbh + sbh / 4) + 2 * sbh + 4 * sbf + 2 * sbf + 2 * sbf) / 8 + stats(8192 / 8) / 2 + lse(8192 * 64 / 8));
    finish(&x);
}

/* The checkpoint of the core keeps q and k, rotated, and values that are a view of the whole product of q, k and v, whose storage stays for
 * it: 10 h/8 columns beside 9 h/8; without it values have a tensor of their own, of h/8.  It saves the row numbers alone. */
static void recompute_of_the_core_keeps_more_where_q_and_k_are_rotated(void **state)
{
    const int64_t sbh = INT64_C(8192) * 8192, sbf = INT64_C(8192) * 28672, without = 8 * sbh + 2 * sbh + 4 * sbf + 2 * sbf;
    struct built x;

    (void)state;
    llama70b(&x, KERNELS_TE);
    x.plan.recompute = RECOMPUTE_SELECTIVE;
    is(saved(&x, PIECE_BLOCK_RECOMPUTED), (without + 2 * (sbh + sbh / 8) + 2 * (sbh + sbh / 4)) / 8 + stats(8192 / 8) / 2);
    assert_non_null(strstr(megatron_note(&x.plan), "more memory than with recompute none"));
    x.plan.recompute = RECOMPUTE_NONE;
    assert_null(megatron_note(&x.plan));
    finish(&x);
}

/* Norms of q and k keep copies of them, so that the product of q, k and v goes, but for the checkpoint of the core, which keeps values: q is 16
 * heads of 128 columns, k and v are 8. */
static void norms_of_q_and_k_keep_copies(void **state)
{
    const int64_t s = 8192, sbh = s * 1024, q = s * 16 * 128, kv = s * 8 * 128, sbf = s * 3072, rows = 4 * s * (16 + 8);
    const int64_t without = 8 * sbh + 4 * (q + kv) + 2 * q + 6 * sbf + rows;
    struct built x;

    (void)state;
    start(&x, "{'model_type': 'qwen3', 'num_hidden_layers': 28, 'hidden_size': 1024, 'intermediate_size': 3072, 'num_attention_heads': 16,"
              " 'num_key_value_heads': 8, 'head_dim': 128, 'vocab_size': 151936, 'max_position_embeddings': 8192, 'tie_word_embeddings': true}",
          KERNELS_TE);
    x.plan.seq = s;
    is(saved(&x, PIECE_BLOCK), (without + 2 * kv) / 8 + stats(s / 8) / 2 + lse(s * 16 / 8));
    x.plan.recompute = RECOMPUTE_SELECTIVE;
    is(saved(&x, PIECE_BLOCK_RECOMPUTED), (without + 2 * (q + 2 * kv)) / 8 + stats(s / 8) / 2);
    finish(&x);
}

/* ---- collectives ---- */

struct listed { enum coll_op op; const char *beside, *needed; };

static void lists(const struct built *x, enum piece_id piece, enum pass pass, const struct listed *want, int n, int64_t elems)
{
    const struct piece *p = &x->program.piece[piece];

    assert_int_equal(p->ncollectives[pass], n);
    for (int i = 0; i < n; i++) {
        const struct collective *c = &p->collectives[pass][i];
        assert_int_equal(c->op, want[i].op);
        is(c->elems, elems);
        assert_int_equal(c->dtype, DT_BF16);
        if (c->needed == p->nkernels[pass])
            assert_null(want[i].needed);
        else
            assert_string_equal(p->kernels[pass][c->needed].name, want[i].needed);
        if (want[i].beside)
            assert_string_equal(p->kernels[pass][c->kernel + 1].name, want[i].beside);
        else
            assert_int_equal(c->needed, c->kernel + 1);
    }
}

/* Six gathers and four scatters, parallel.md 1.7: those of a column-parallel layer's backward run beside its products. */
static void a_block_gathers_six_times(void **state)
{
    static const struct listed forward[] = {
        { COLL_ALL_GATHER, NULL, "qkv" }, { COLL_REDUCE_SCATTER, NULL, "bias dropout add" },
        { COLL_ALL_GATHER, NULL, "mlp gate up" }, { COLL_REDUCE_SCATTER, NULL, "mlp bias dropout add" },
    }, backward[] = {
        { COLL_ALL_GATHER, NULL, "mlp down dX" },
        { COLL_ALL_GATHER, "mlp gate up dX", "mlp gate up dW" }, { COLL_REDUCE_SCATTER, "mlp gate up dW", "mlp norm" },
        { COLL_ALL_GATHER, NULL, "attention output dX" },
        { COLL_ALL_GATHER, "qkv dX", "qkv dW" }, { COLL_REDUCE_SCATTER, "qkv dW", "norm" },
    };
    struct built x;
    int64_t sent = 0;

    (void)state;
    llama70b(&x, KERNELS_TE);
    build(&x);
    lists(&x, PIECE_BLOCK, PASS_FORWARD, forward, 4, INT64_C(8192) * 8192);
    lists(&x, PIECE_BLOCK, PASS_BACKWARD, backward, 6, INT64_C(8192) * 8192);
    for (int pass = 0; pass < NPASS; pass++)
        for (int i = 0; i < x.program.piece[PIECE_BLOCK].ncollectives[pass]; i++)
            sent += 2 * x.program.piece[PIECE_BLOCK].collectives[pass][i].elems / 8 * 7;
    is(sent, INT64_C(1174405120));      /* vector 9: ten times 117,440,512, vector 7's share of 134,217,728 bytes */
    is(sent / 10 * 8 / 7, INT64_C(134217728));
    finish(&x);
}

/* Vector 8: a sum sends 2 x 7/8 of 134,217,728 bytes, 234,881,024, as much as a gather and a scatter. */
static void without_shares_of_positions_a_block_sums_four_times(void **state)
{
    static const struct listed forward[] = {
        { COLL_ALL_REDUCE, NULL, "bias dropout add" }, { COLL_ALL_REDUCE, NULL, "mlp bias dropout add" },
    }, backward[] = { { COLL_ALL_REDUCE, "mlp gate up dW", "mlp norm" }, { COLL_ALL_REDUCE, "qkv dW", "norm" } };
    struct built x;

    (void)state;
    llama70b(&x, KERNELS_TE);
    x.plan.parallel.sequence = false;
    build(&x);
    lists(&x, PIECE_BLOCK, PASS_FORWARD, forward, 2, INT64_C(8192) * 8192);
    lists(&x, PIECE_BLOCK, PASS_BACKWARD, backward, 2, INT64_C(8192) * 8192);
    is(2 * 2 * x.program.piece[PIECE_BLOCK].collectives[PASS_FORWARD][0].elems / 8 * 7, INT64_C(234881024));
    x.plan.parallel.tensor = 1;
    build(&x);
    assert_int_equal(x.program.ncollectives, 0);
    finish(&x);
}

/* tp_comm_overlap: a gather of forward, or of a row-parallel layer's backward, is seven copies of a share, each beside a product of an eighth; a
 * scatter too, whose sum comes last.  As many bytes are sent, and as much is computed. */
static void overlapped_products_come_in_eight_parts(void **state)
{
    struct built x;
    double flops[NPASS];

    (void)state;
    llama70b(&x, KERNELS_TE);
    build(&x);
    for (int pass = 0; pass < NPASS; pass++)
        flops[pass] = x.program.piece[PIECE_BLOCK].flops[pass];
    int64_t saved_whole = x.program.piece[PIECE_BLOCK].saved;
    x.plan.megatron.tp_comm_overlap = true;
    build(&x);
    const struct piece *p = &x.program.piece[PIECE_BLOCK];
    for (int pass = 0; pass < NPASS; pass++) {
        int parts = 0, sums = 0;
        int64_t sent = 0;
        assert_close(p->flops[pass], flops[pass], 1e-12);
        for (int i = 0; i < p->ncollectives[pass]; i++) {
            const struct collective *c = &p->collectives[pass][i];
            parts += c->engine;
            sent += 2 * (c->engine ? c->elems : c->elems / 8 * 7);
            if (c->engine && i + 1 < p->ncollectives[pass])
                assert_int_equal(p->kernels[pass][c->kernel + 1].kind, KC_GEMM);
            assert_true(c->needed > c->kernel + 1 || pass == PASS_BACKWARD || c->engine);
            assert_false(p->kernels[pass][c->needed].collective);
        }
        for (int k = 0; k < p->nkernels[pass]; k++)
            sums += !strcmp(p->kernels[pass][k].name, "sum of parts");
        assert_int_equal(parts, pass == PASS_FORWARD ? 4 * 7 : 2 * 7);
        assert_int_equal(sums, pass == PASS_FORWARD ? 2 : 0);
        assert_int_equal(p->ncollectives[pass], pass == PASS_FORWARD ? 28 : 14 + 4);
        is(sent, (pass == PASS_FORWARD ? 4 : 6) * INT64_C(117440512));
    }
    is(p->saved, saved_whole);
    finish(&x);
}

/* All of a block runs again: two gathers and two scatters more (parallel.md 1.8). */
static void full_recompute_repeats_the_collectives(void **state)
{
    struct built x;

    (void)state;
    llama70b(&x, KERNELS_TE);
    build(&x);
    double once = x.program.piece[PIECE_BLOCK].flops[PASS_BACKWARD] + x.program.piece[PIECE_BLOCK].flops[PASS_FORWARD];
    x.plan.recompute = RECOMPUTE_FULL;
    build(&x);
    assert_int_equal(x.program.piece[PIECE_BLOCK_RECOMPUTED].ncollectives[PASS_FORWARD], 4);
    assert_int_equal(x.program.piece[PIECE_BLOCK_RECOMPUTED].ncollectives[PASS_BACKWARD], 10);
    assert_close(x.program.piece[PIECE_BLOCK_RECOMPUTED].flops[PASS_BACKWARD], once, 1e-12);
    x.plan.recompute = RECOMPUTE_SELECTIVE;
    build(&x);
    assert_int_equal(x.program.piece[PIECE_BLOCK_RECOMPUTED].ncollectives[PASS_BACKWARD], 6);
    finish(&x);
}

/* The embedding scatters and gathers, the head gathers, twice in all, and scatters: 80 * 10 + 5 of them, vector 13; and the loss's three
 * sums of a number a row. */
static void the_ends_have_five_and_three(void **state)
{
    const int64_t full = INT64_C(8192) * 8192;
    struct built x;

    (void)state;
    llama70b(&x, KERNELS_TE);
    build(&x);
    lists(&x, PIECE_EMBED, PASS_FORWARD, (const struct listed[]){ { COLL_REDUCE_SCATTER, NULL, "rotary angles" } }, 1, full);
    lists(&x, PIECE_EMBED, PASS_BACKWARD, (const struct listed[]){ { COLL_ALL_GATHER, NULL, "token embedding" } }, 1, full);
    lists(&x, PIECE_HEAD, PASS_BACKWARD, (const struct listed[]){ { COLL_ALL_GATHER, "logits dX", "logits dW" },
          { COLL_REDUCE_SCATTER, "logits dW", "final norm" } }, 2, full);
    const struct piece *h = &x.program.piece[PIECE_HEAD];
    assert_int_equal(h->ncollectives[PASS_FORWARD], 4);
    is(h->collectives[PASS_FORWARD][0].elems, full);
    assert_int_equal(h->collectives[PASS_FORWARD][1].red, RED_MAX);
    for (int i = 1; i < 4; i++) {
        assert_int_equal(h->collectives[PASS_FORWARD][i].op, COLL_ALL_REDUCE);
        assert_int_equal(h->collectives[PASS_FORWARD][i].dtype, DT_FP32);
        is(h->collectives[PASS_FORWARD][i].elems, 8192);
    }
    is((80 * 10 + 5) * (2 * full / 8 * 7), INT64_C(94539612160));
    finish(&x);
}

/* Learned positions are added to what all ranks have: their sum, then each rank's share of it. */
static void positions_are_added_before_ranks_take_their_shares(void **state)
{
    struct built x;

    (void)state;
    gpt3(&x, KERNELS_TE);
    build(&x);
    lists(&x, PIECE_EMBED, PASS_FORWARD, (const struct listed[]){ { COLL_ALL_REDUCE, NULL, "position embedding" } }, 1, SBH);
    lists(&x, PIECE_EMBED, PASS_BACKWARD, (const struct listed[]){ { COLL_ALL_GATHER, NULL, "position embedding" } }, 1, SBH);
    finish(&x);
}

/* ---- recompute by module ---- */

/* Without dropout a block of 70B keeps x, norm(x) and q, k, v and the attention's output; of the MLP its input, which is the residual that the
 * norm keeps besides, alone.  Backward runs the gather, the products and the scatter again: one gather and one scatter more. */
static void the_mlp_runs_again(void **state)
{
    const int64_t sbh = INT64_C(8192) * 8192;
    struct built x;

    (void)state;
    llama70b(&x, KERNELS_TE);
    build(&x);
    double once = 2.0 * 3 * 8192 * 28672 * 8192 / 8;
    double back = x.program.piece[PIECE_BLOCK].flops[PASS_BACKWARD];
    int64_t without = x.program.piece[PIECE_BLOCK].saved;
    x.plan.recompute = RECOMPUTE_SELECTIVE;
    strcpy(x.plan.megatron.recompute_modules, "mlp");
    is(saved(&x, PIECE_BLOCK_RECOMPUTED), (4 * sbh + 2 * (sbh + sbh / 4) + 2 * sbh + 2 * sbh) / 8 + stats(8192 / 8) / 4 + lse(8192 * 64 / 8));
    assert_close(x.program.piece[PIECE_BLOCK_RECOMPUTED].flops[PASS_BACKWARD], back + once, 1e-12);
    assert_int_equal(x.program.piece[PIECE_BLOCK_RECOMPUTED].ncollectives[PASS_BACKWARD], 8);
    /* The core's checkpoint holds q and k, rotated, and v, a view of the whole projection. */
    strcpy(x.plan.megatron.recompute_modules, "core_attn,mlp");
    is(saved(&x, PIECE_BLOCK_RECOMPUTED), (4 * sbh + 2 * (sbh + sbh / 8) + 2 * (sbh + sbh / 4) + 2 * sbh + 2 * sbh) / 8 + stats(8192 / 8) / 4);
    strcpy(x.plan.megatron.recompute_modules, "layernorm");     /* inside of the linear layers: nothing runs again */
    x.plan.recompute = RECOMPUTE_SELECTIVE;
    is(saved(&x, PIECE_BLOCK_RECOMPUTED), without);
    finish(&x);
}

/* ---- gradients ---- */

/* A product reads and writes main_grad; no weight of a block leaves a gradient in memory, and every tensor of it is handed out once. */
static void weights_have_no_gradient_of_their_own(void **state)
{
    static const struct { enum piece_id piece; int tensors; } of[] = { { PIECE_BLOCK, 12 }, { PIECE_EMBED, 2 }, { PIECE_HEAD, 2 } };
    struct built x;

    (void)state;
    gpt3(&x, KERNELS_TE);
    build(&x);
    for (int i = 0; i < 3; i++) {
        const struct piece *p = &x.program.piece[of[i].piece];
        int ready = 0, adds = 0;
        for (int k = 0; k < p->nkernels[PASS_BACKWARD]; k++) {
            const struct kernel *kernel = &p->kernels[PASS_BACKWARD][k];
            is(kernel->net[MEM_GRADS] + kernel->ready_bytes, 0);
            for (int r = 0; r < 4; r++)
                ready += kernel->ready[r] >= 0;
            adds += !strcmp(kernel->name, "main grad add");
        }
        assert_int_equal(ready, of[i].tensors);
        assert_int_equal(adds, i == 0 ? 8 : 2);         /* all but the four weights of products */
    }
    finish(&x);
}

static int64_t backward_bytes(const struct piece *p)
{
    int64_t sum = 0;

    for (int k = 0; k < p->nkernels[PASS_BACKWARD]; k++)
        sum += p->kernels[PASS_BACKWARD][k].bytes;
    return sum;
}

/* Fused, a product reads and writes n numbers of main_grad, 8 bytes each; apart it writes 2 bytes each, and the hook's kernel reads those and
 * main_grad, and writes main_grad: 10 bytes.  That is 4 bytes a number more, and a kernel more for each of the block's four weights. */
static void without_fusion_a_kernel_adds_each_weights_gradient(void **state)
{
    struct local_model local;
    struct built x;
    int64_t bytes, weights = 0;
    int kernels, adds = 0;

    (void)state;
    gpt3(&x, KERNELS_TE);
    build(&x);
    bytes = backward_bytes(&x.program.piece[PIECE_BLOCK]);
    kernels = x.program.piece[PIECE_BLOCK].nkernels[PASS_BACKWARD];
    x.plan.megatron.gradient_accumulation_fusion = false;
    build(&x);
    assert_int_equal(local_model_of(&x.plan, 0, &local), 0);
    for (int i = 0; i < local.model->ntensors; i++)
        if (local.model->tensors[i].block == 0 && local.model->tensors[i].ndim == 2)
            weights += local.model->tensors[i].numel;
    const struct piece *p = &x.program.piece[PIECE_BLOCK];
    for (int k = 0; k < p->nkernels[PASS_BACKWARD]; k++)
        adds += !strcmp(p->kernels[PASS_BACKWARD][k].name, "main grad add");
    is(backward_bytes(p) - bytes, 4 * weights);
    assert_int_equal(p->nkernels[PASS_BACKWARD] - kernels, 4);
    assert_int_equal(adds, 8 + 4);
    local_model_free(&local);
    finish(&x);
}

/* ---- whole steps ---- */

static const char *const models[] = {
    "{'model_type': 'gpt2', 'n_layer': 5, 'n_embd': 256, 'n_head': 8, 'vocab_size': 1000, 'n_positions': 128,"
    " 'activation_function': 'gelu_new'}",
    "{'model_type': 'llama', 'num_hidden_layers': 5, 'hidden_size': 256, 'intermediate_size': 1024, 'num_attention_heads': 8,"
    " 'num_key_value_heads': 4, 'vocab_size': 1000, 'max_position_embeddings': 128, 'rms_norm_eps': 1e-5,"
    " 'tie_word_embeddings': true}",
    "{'model_type': 'qwen3', 'num_hidden_layers': 5, 'hidden_size': 256, 'intermediate_size': 1024, 'num_attention_heads': 8, 'head_dim': 64,"
    " 'num_key_value_heads': 8, 'vocab_size': 1000, 'max_position_embeddings': 128, 'rms_norm_eps': 1e-6}",
};
enum { NMODELS = sizeof models / sizeof *models };

static void every_gradient_is_handed_out_and_nothing_stays(void **state)
{
    static const enum recompute again[] = { RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL };
    static const enum loss_kind losses[] = { LOSS_FP32, LOSS_COMPILED, LOSS_FUSED };

    (void)state;
    for (int mode = 0; mode < NMODELS * 2 * 3 * 3 * 2 * 2 * 2; mode++) {
        struct local_model local;
        struct built x;
        start(&x, models[mode % NMODELS], mode / NMODELS % 2 ? KERNELS_TE : KERNELS_MEGATRON_LOCAL);
        x.plan.recompute = again[mode / NMODELS / 2 % 3];
        x.plan.loss = losses[mode / NMODELS / 6 % 3];
        x.plan.parallel.tensor = mode / NMODELS / 18 % 2 ? 4 : 1;
        x.plan.parallel.sequence = mode / NMODELS / 36 % 2 && x.plan.parallel.tensor > 1;
        x.plan.megatron.gradient_accumulation_fusion = mode / NMODELS / 72 == 0;
        x.plan.megatron.bias_swiglu_fusion = x.plan.model.mlp != MLP_GATED || mode % 7 < 4;
        x.plan.seq = 128;
        x.plan.micro_batch = 1 + mode % 2;
        x.plan.dropout = mode % 5 ? 0 : 0.1;
        x.plan.recompute_interval = 2;
        build(&x);
        assert_int_equal(local_model_of(&x.plan, 0, &local), 0);
        check_step(&x, &local);
        local_model_free(&local);
        finish(&x);
    }
}

/* Every method of context parallelism, its recompute, samples one and several; modules that run again. */
static void contexts_and_modules_give_back_what_they_take(void **state)
{
    static const struct { enum context_method method; int64_t run; } of[] = {
        { CONTEXT_ALL_GATHER, 1 }, { CONTEXT_RING, 1 }, { CONTEXT_ULYSSES, 1 }, { CONTEXT_RING, 2 },
    };
    static const char *const modules[] = { "", "mlp", "core_attn,mlp", "layernorm" };

    (void)state;
    for (int mode = 0; mode < 4 * 2 * 6; mode++) {
        struct local_model local;
        struct built x;
        start(&x, models[1 + mode % 2], KERNELS_TE);
        x.plan.parallel.tensor = 1;
        x.plan.parallel.sequence = false;
        x.plan.parallel.context = 4;
        x.plan.parallel.context_balance = true;
        x.plan.parallel.context_method = of[mode / 2 % 4].method;
        x.plan.megatron.a2a_ranks = of[mode / 2 % 4].run;
        x.plan.seq = 128;
        x.plan.micro_batch = 1 + mode % 2;
        x.plan.recompute = mode / 8 == 0 ? RECOMPUTE_NONE : mode / 8 == 1 ? RECOMPUTE_FULL : RECOMPUTE_SELECTIVE;
        strcpy(x.plan.megatron.recompute_modules, mode / 8 < 2 ? "" : modules[mode / 8 - 2]);
        build(&x);
        assert_int_equal(local_model_of(&x.plan, 0, &local), 0);
        check_step(&x, &local);
        local_model_free(&local);
        finish(&x);
    }
}

/* 6 a token and parameter of the products, of which the embedding is none, and 12 L h s; tensor-parallel ranks share them evenly. */
static void flops_are_6n_and_12lhs(void **state)
{
    struct built x;

    (void)state;
    llama70b(&x, KERNELS_TE);
    build(&x);
    double n = 80 * (2 * 8192.0 * 8192 + 2 * 8192.0 * 1024 + 3 * 8192.0 * 28672) + 129024 * 8192.0;
    assert_close(program_flops(&x.program, &x.plan, false), 8192 * (6 * n + 12 * 80 * 8192.0 * 8192) / 8, 1e-12);
    finish(&x);
}

/* Vector 18: the softmax of 8192 tokens over 129,024 / 8 columns, a byte and eight for each token's label. */
static void the_loss_keeps_its_softmax(void **state)
{
    struct built x;

    (void)state;
    llama70b(&x, KERNELS_TE);
    build(&x);
    /* Beside it the head keeps its input, normed, a row's 1/sigma, the mean's number; and gives back the position ids. */
    is(x.program.piece[PIECE_HEAD].saved, 528482304 + 8192 + 8 * 8192 + 2 * 1024 * 8192 + 4 * 1024 + 512 - 8 * 8192);
    finish(&x);
}

/* ---- 8 and 4 bits ---- */

static void in_few_bits(struct built *x, const char *gpu, enum scaled s, bool now)
{
    struct megatron_options *o = &x->plan.megatron;

    x->plan.cluster.gpu = *gpu_find(gpu);
    o->fp8_format = s == SCALED_NVFP4 ? FP8_OFF : FP8_HYBRID;
    o->fp4_format = s == SCALED_NVFP4 ? FP4_E2M1 : FP4_OFF;
    o->fp8_recipe = s == SCALED_MXFP8 ? FP8_MXFP8 : s == SCALED_FP8_BLOCK ? FP8_BLOCKWISE : now ? FP8_TENSORWISE : FP8_DELAYED;
}

#define S70BH (INT64_C(8192) * 8192)
#define S70BF (INT64_C(8192) * 28672)

/* MuP: 8192 positions of 128256 / 8 logits of a rank (padded to 129024) are multiplied by a number, read and written in 16 bits, and so is their gradient;
 * nothing else is kept. */
static void scaled_logits_are_a_pass_each_way(void **state)
{
    int64_t pass = 2 * 2 * (int64_t)8192 * 129024 / 8, bytes = 0, kept;
    struct built x;

    (void)state;
    llama70b(&x, KERNELS_TE);
    kept = saved(&x, PIECE_HEAD);
    x.plan.megatron.scale_logits = true;
    is(saved(&x, PIECE_HEAD), kept);
    for (int way = 0; way < NPASS; way++, bytes = 0) {
        is(kernels_named(&x, PIECE_HEAD, (enum pass)way, "scale logits", &bytes), 1);
        is(bytes, pass);
    }
    check_nothing_stays(&x, &x.plan);
    finish(&x);
}

/* Codes of what layers read in place of norm(x) twice and of the product of gate and up; with delayed scaling also of attention's output,
 * beside it, which attention keeps for itself: other recipes cast it again in backward (set_save_original_input()).  q, k, v, x, gate and up stay in 16 bits. */
static void codes_are_kept_in_place_of_numbers(void **state)
{
    static const struct { const char *gpu; enum scaled s; bool now; int64_t of32; } cases[] = {
        { "h100", SCALED_FP8_TENSOR, false, 32 }, { "h100", SCALED_FP8_TENSOR, true, 32 }, { "b200", SCALED_FP8_TENSOR, false, 32 },
        { "h100", SCALED_FP8_BLOCK, false, 33 },  { "b200", SCALED_MXFP8, false, 33 },     { "b200", SCALED_NVFP4, false, 18 },
    };
    struct built x;

    (void)state;
    llama70b(&x, KERNELS_TE);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool delayed = cases[i].s == SCALED_FP8_TENSOR && !cases[i].now;
        int64_t codes = (2 * S70BH + (delayed ? S70BH : 0) + S70BF) / 32 * cases[i].of32;
        in_few_bits(&x, cases[i].gpu, cases[i].s, cases[i].now);
        is(saved(&x, PIECE_BLOCK), (4 * S70BH + 2 * (S70BH + S70BH / 4) + 2 * S70BH + 4 * S70BF + codes) / 8 + stats(8192 / 8) / 2 + lse(8192 * 64 / 8));
    }
    finish(&x);
}

/* What ranks gather is codes, what they add up is not.  Scales found at once: a number before each gather.  Scaled by blocks, a gradient's
 * columns are gathered beside the product that reads its rows. */
static void codes_are_gathered(void **state)
{
    static const struct { const char *gpu; enum scaled s; bool now; int numbers, gathers[NPASS]; int64_t elems; } cases[] = {
        { "h100", SCALED_FP8_TENSOR, false, 0, { 2, 4 }, S70BH }, { "h100", SCALED_FP8_TENSOR, true, 2, { 2, 4 }, S70BH },
        { "b200", SCALED_MXFP8, false, 0, { 2, 6 }, S70BH / 32 * 33 }, { "b200", SCALED_NVFP4, false, 2, { 2, 6 }, S70BH / 16 * 9 },
    };
    struct built x;

    (void)state;
    llama70b(&x, KERNELS_TE);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        in_few_bits(&x, cases[i].gpu, cases[i].s, cases[i].now);
        build(&x);
        for (int pass = 0; pass < NPASS; pass++) {
            const struct piece *p = &x.program.piece[PIECE_BLOCK];
            int n[NCOLL] = { 0 };
            for (int k = 0; k < p->ncollectives[pass]; k++) {
                const struct collective *c = &p->collectives[pass][k];
                bool number = c->op == COLL_ALL_REDUCE;
                n[c->op]++;
                is(c->elems, number ? 1 : c->op == COLL_ALL_GATHER ? cases[i].elems : S70BH);
                assert_int_equal(c->dtype, number ? DT_FP32 : c->op == COLL_ALL_GATHER ? DT_UINT8 : DT_BF16);
                assert_int_equal(c->red, number ? RED_MAX : c->op == COLL_ALL_GATHER ? RED_NONE : RED_SUM);
            }
            assert_int_equal(n[COLL_ALL_GATHER], cases[i].gathers[pass]);
            assert_int_equal(n[COLL_REDUCE_SCATTER], 2);
            assert_int_equal(n[COLL_ALL_REDUCE], cases[i].numbers);
        }
    }
    finish(&x);
}

/* Bytes of the kernels beside products.  Forward casts what two row-parallel layers read (a norm writes its own where the scale is known), a
 * byte along rows, a byte along columns; backward four gradients, of which those that are gathered along rows alone; before Blackwell what was
 * gathered is turned: two inputs, two gradients.  Where scales are found at once attention's output is cast along rows, and in backward again, both
 * ways.  A rank has an eighth, but of what it turned. */
static void casts_pass_over_their_bytes(void **state)
{
    static const struct { const char *gpu; bool now; int64_t columns; int forward, turned; } cases[] = {
        { "h100", false, 1, 2, 4 }, { "h100", true, 1, 4, 4 }, { "b200", false, 0, 2, 0 },
    };
    const int64_t output = S70BH / 8, inputs = (S70BH + S70BF) / 8, norms = 2 * S70BH / 8, whole = (S70BH * 5 / 4 + 2 * S70BF) / 8, parts = 2 * S70BH / 8;
    struct built x;

    (void)state;
    llama70b(&x, KERNELS_TE);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t cast[NPASS] = { 0 }, turned = 0, most[NPASS] = { 0 }, both = 3 + cases[i].columns;
        in_few_bits(&x, cases[i].gpu, SCALED_FP8_TENSOR, cases[i].now);
        build(&x);
        assert_int_equal(kernels_named(&x, PIECE_BLOCK, PASS_FORWARD, "cast", &cast[0]), cases[i].forward);
        is(cast[0], inputs * both + (cases[i].now ? norms * 3 - output : 0));
        assert_int_equal(kernels_named(&x, PIECE_BLOCK, PASS_BACKWARD, "cast", &cast[1]), cases[i].now ? 5 : 4);
        is(cast[1], whole * both + parts * 3 + (cases[i].now ? output * both : 0));
        assert_int_equal(kernels_named(&x, PIECE_BLOCK, PASS_BACKWARD, "transposed copy", &turned), cases[i].turned);
        is(turned, cases[i].turned * 2 * S70BH);
        assert_int_equal(kernels_named(&x, PIECE_BLOCK, PASS_FORWARD, "largest number", &most[0]), cases[i].now ? 2 : 0);
        is(most[0], cases[i].now ? 2 * inputs : 0);
        assert_int_equal(kernels_named(&x, PIECE_BLOCK, PASS_BACKWARD, "largest number", &most[1]), cases[i].now ? 5 : 0);
        is(most[1], cases[i].now ? 2 * (whole + parts + output) : 0);
    }
    finish(&x);
}

/* CheckpointFunction.backward() has names for what ran again gave, and for its gradient, until it returns: an eighth of the positions each, beside
 * the layer's input; the norm's weight's gradient, 8192 numbers, goes then as well. */
static void a_checkpoint_holds_its_result_and_its_gradient(void **state)
{
    struct built x;

    (void)state;
    llama70b(&x, KERNELS_TE);
    x.plan.recompute = RECOMPUTE_FULL;
    build(&x);
    const struct piece *p = &x.program.piece[PIECE_BLOCK_RECOMPUTED];
    const struct kernel *last = &p->kernels[PASS_BACKWARD][p->nkernels[PASS_BACKWARD] - 1];
    is(last->net[MEM_ACTIVATIONS], -2 * 2 * S70BH / 8);
    is(last->net[MEM_TEMPORARIES], -2 * S70BH / 8 - 2 * 8192);
    finish(&x);
}

/* All twelve products of a block, whose results stay in 16 bits; the head's are not. */
static void a_blocks_products_read_codes(void **state)
{
    struct built x;
    int n = 0;

    (void)state;
    llama70b(&x, KERNELS_TE);
    in_few_bits(&x, "h100", SCALED_FP8_TENSOR, false);
    for (int overlaps = 0; overlaps < 2; overlaps++) {
        x.plan.megatron.tp_comm_overlap = overlaps;
        build(&x);
        for (int pass = 0; pass < NPASS; pass++)
            for (int k = 0; k < x.program.piece[PIECE_BLOCK].nkernels[pass]; k++) {
                const struct kernel *g = &x.program.piece[PIECE_BLOCK].kernels[pass][k];
                bool weight = strstr(g->name, " dW") != NULL;
                if (g->kind != KC_GEMM || g->m == 0)
                    continue;
                n += !overlaps;
                assert_int_equal(g->scaled, SCALED_FP8_TENSOR);
                is(g->bytes, g->m * g->k + g->n * g->k + (weight ? 2 * 4 : 2) * g->m * g->n);
            }
        for (int pass = 0; pass < NPASS; pass++)
            for (int k = 0; k < x.program.piece[PIECE_HEAD].nkernels[pass]; k++)
                assert_int_equal(x.program.piece[PIECE_HEAD].kernels[pass][k].scaled, SCALED_NONE);
    }
    assert_int_equal(n, 12);
    finish(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(korthikantis_table_2),
        cmocka_unit_test(transformer_engine_keeps_34_bytes),
        cmocka_unit_test(unfused_attention_keeps_the_scores),
        cmocka_unit_test(a_llama_block_keeps),
        cmocka_unit_test(recompute_of_the_core_keeps_more_where_q_and_k_are_rotated),
        cmocka_unit_test(norms_of_q_and_k_keep_copies),
        cmocka_unit_test(a_block_gathers_six_times),
        cmocka_unit_test(without_shares_of_positions_a_block_sums_four_times),
        cmocka_unit_test(overlapped_products_come_in_eight_parts),
        cmocka_unit_test(full_recompute_repeats_the_collectives),
        cmocka_unit_test(the_ends_have_five_and_three),
        cmocka_unit_test(positions_are_added_before_ranks_take_their_shares),
        cmocka_unit_test(the_mlp_runs_again),
        cmocka_unit_test(contexts_and_modules_give_back_what_they_take),
        cmocka_unit_test(weights_have_no_gradient_of_their_own),
        cmocka_unit_test(without_fusion_a_kernel_adds_each_weights_gradient),
        cmocka_unit_test(every_gradient_is_handed_out_and_nothing_stays),
        cmocka_unit_test(flops_are_6n_and_12lhs),
        cmocka_unit_test(the_loss_keeps_its_softmax), cmocka_unit_test(scaled_logits_are_a_pass_each_way),
        cmocka_unit_test(codes_are_kept_in_place_of_numbers),
        cmocka_unit_test(codes_are_gathered),
        cmocka_unit_test(casts_pass_over_their_bytes),
        cmocka_unit_test(a_checkpoint_holds_its_result_and_its_gradient),
        cmocka_unit_test(a_blocks_products_read_codes),
    };
    return cmocka_run_group_tests_name("model/te_program", tests, NULL, NULL);
}
