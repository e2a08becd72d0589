/* The block programs against published formulas, all in bytes over s*b*h:
 * Korthikanti et al. 2022 (arXiv 2205.05198), Table 2, and the variants that follow
 * from it by counting.  s = 128, b = 2 and the widths are such that every tensor is a
 * multiple of 512 bytes, so that rounding changes nothing. */
#include "tests/model/built.h"

enum { S = 128, B = 2, H = 256, A = 4, F = 1024, V = 4096 };
#define SBH ((int64_t)S * B * H)
#define SBF ((int64_t)S * B * F)
#define SB  ((int64_t)S * B)
#define AS2B ((int64_t)A * S * S * B)
#define ABS ((int64_t)A * B * S)

static const char gpt2_config[] =
    "{'model_type': 'gpt2', 'n_layer': 3, 'n_embd': 256, 'n_head': 4, 'vocab_size': 4096, 'n_positions': 128,"
    " 'activation_function': 'gelu', 'resid_pdrop': 0.1, 'embd_pdrop': 0.1, 'attn_pdrop': 0.1}";
static const char llama_config[] =
    "{'model_type': 'llama', 'num_hidden_layers': 3, 'hidden_size': 256, 'intermediate_size': 1024,"
    " 'num_attention_heads': 4, 'num_key_value_heads': 2, 'vocab_size': 4096, 'max_position_embeddings': 128,"
    " 'rms_norm_eps': 1e-5, 'tie_word_embeddings': false}";

static void start(struct built *x, const char *config, enum kernel_set k, enum dtype t)
{
    built_start(x, config, STRAT_FSDP, DIALECT_TORCH, t, k);
    x->plan.seq = S;
    x->plan.micro_batch = B;
}

static int64_t saved(struct built *x, enum piece_id piece)
{
    struct span sp;

    build(x);
    program_span(&x->program, piece, PASS_FORWARD, 0, x->program.piece[piece].nkernels[PASS_FORWARD],
                 GRADS_KEEP, &sp);
    assert_int_equal(sp.net[MEM_ACTIVATIONS], x->program.piece[piece].saved);
    return sp.net[MEM_ACTIVATIONS];
}

/* Each head of each sample: 2 s s d for its scores and as much for what it takes of the values; both again
 * for either operand in backward. */
static void attention_has_a_matrix_for_each_head(void **state)
{
    (void)state;
    static const char *const configs[] = { gpt2_config, llama_config };

    for (int i = 0; i < 2; i++) {
        struct built x;
        int seen = 0;
        start(&x, configs[i], KERNELS_DPX, DT_FP32);
        build(&x);
        const struct piece *g = &x.program.piece[PIECE_BLOCK];
        for (int pass = PASS_FORWARD; pass <= PASS_BACKWARD; pass++)
            for (int k = 0; k < g->nkernels[pass]; k++) {
                const struct kernel *of = &g->kernels[pass][k];
                if (of->kind != KC_ATTENTION)
                    continue;
                seen++;
                assert_int_equal(of->batch, A * B);
                assert_true(of->flops == (of->fn == FN_ATTENTION ? 4.0 : 8.0) * A * B * S * S * (H / A));
            }
        assert_int_equal(seen, 2);
        finish(&x);
    }
}

/* ---- activations of a block ---- */

/* 16 sb: mean and 1/sigma of two LayerNorms in fp32, which Table 2 leaves out. */
static void eager_gpt_block_is_34_sbh_and_5_as2b(void **state)
{
    (void)state;
    struct built x;
    start(&x, gpt2_config, KERNELS_TORCH_EAGER, DT_BF16);
    x.plan.dropout = 0.1;
    assert_int_equal(saved(&x, PIECE_BLOCK), 34 * SBH + 5 * AS2B + 16 * SB);
    /* Without dropout: two masks of sbh and one of as2b less, and the softmax's
     * output is what the values are multiplied with. */
    x.plan.dropout = 0;
    assert_int_equal(saved(&x, PIECE_BLOCK), 32 * SBH + 2 * AS2B + 16 * SB);
    finish(&x);
}

/* transformers' default for GPT-2, "gelu_new", is eight kernels; three more tensors of
 * 4h are saved: x/2, tanh, 1 + tanh. */
static void gelu_of_eight_kernels_saves_24_sbh_more(void **state)
{
    (void)state;
    struct built x;
    start(&x, gpt2_config, KERNELS_TORCH_EAGER, DT_BF16);
    x.plan.dropout = 0.1;
    x.plan.model.act = ACT_GELU_TANH;
    x.plan.model.act_code = ACT_OF_POWER;
    assert_int_equal(saved(&x, PIECE_BLOCK), (34 + 24) * SBH + 5 * AS2B + 16 * SB);
    finish(&x);
}

static void in_fp32_all_but_masks_and_statistics_doubles(void **state)
{
    (void)state;
    struct built x;
    start(&x, gpt2_config, KERNELS_TORCH_EAGER, DT_FP32);
    x.plan.dropout = 0.1;
    assert_int_equal(saved(&x, PIECE_BLOCK), (2 * 32 + 2) * SBH + (2 * 4 + 1) * AS2B + 16 * SB);
    finish(&x);
}

/* 4abs: log-sum-exp in fp32.  1024: the random state of the fused kernel. */
static void flash_attention_drops_the_quadratic_term(void **state)
{
    (void)state;
    struct built x;
    start(&x, gpt2_config, KERNELS_TORCH_SDPA, DT_BF16);
    x.plan.dropout = 0.1;
    assert_int_equal(saved(&x, PIECE_BLOCK), 34 * SBH + 4 * ABS + 16 * SB + 1024);
    x.plan.dropout = 0;
    assert_int_equal(saved(&x, PIECE_BLOCK), 32 * SBH + 4 * ABS + 16 * SB + 1024);
    finish(&x);
}

static void recompute_keeps_34_or_2_sbh(void **state)
{
    (void)state;
    struct built x;
    start(&x, gpt2_config, KERNELS_TORCH_EAGER, DT_BF16);
    x.plan.dropout = 0.1;
    x.plan.recompute = RECOMPUTE_SELECTIVE;
    assert_int_equal(saved(&x, PIECE_BLOCK_RECOMPUTED), 34 * SBH + 16 * SB);
    x.plan.recompute = RECOMPUTE_FULL;
    assert_int_equal(saved(&x, PIECE_BLOCK_RECOMPUTED), 2 * SBH);
    x.plan.kernels = KERNELS_DPX;
    assert_int_equal(saved(&x, PIECE_BLOCK_RECOMPUTED), 2 * SBH);
    finish(&x);
}

/* g/a = 1/2 here: k and v have half of q's heads. */
static void llama_block_follows_from_its_parts(void **state)
{
    (void)state;
    struct built x;
    int64_t published = 12 * SBH + 4 * SBH / 2 + 4 * ABS + 8 * SB;
    start(&x, llama_config, KERNELS_TORCH_SDPA, DT_BF16);
    /* SwiGLU eagerly: gate, up, silu(gate) and the product.  transformers' RMSNorm keeps,
     * of each norm, an fp32 copy of its input (4) and the normalised input (2) where the
     * formula has the input (2): 8 more for two norms. */
    assert_int_equal(saved(&x, PIECE_BLOCK), published + 8 * SBH + 8 * SBF + 1024);
    x.plan.kernels = KERNELS_DPX;
    assert_int_equal(saved(&x, PIECE_BLOCK), published + 6 * SBF);
    finish(&x);
}

/* repeat_kv copies k and v to all heads; scores are softmaxed in fp32 and cast back. */
static void eager_grouped_queries_pay_for_all_heads(void **state)
{
    (void)state;
    struct built x;
    start(&x, llama_config, KERNELS_TORCH_EAGER, DT_BF16);
    assert_int_equal(saved(&x, PIECE_BLOCK), (20 + 4) * SBH + 8 * SBF + 8 * SB + (4 + 2) * AS2B);
    finish(&x);
}

static void our_gpt_block_is_32_sbh(void **state)
{
    (void)state;
    struct built x;
    start(&x, gpt2_config, KERNELS_DPX, DT_BF16);
    for (int i = 0; i < 2; i++) {       /* no mask is kept for dropout */
        x.plan.dropout = i * 0.1;
        assert_int_equal(saved(&x, PIECE_BLOCK), 32 * SBH + 4 * ABS + 16 * SB);
    }
    x.plan.recompute = RECOMPUTE_SELECTIVE;
    assert_int_equal(saved(&x, PIECE_BLOCK_RECOMPUTED), 30 * SBH + 16 * SB);
    finish(&x);
}

/* The most temporaries that one half of our block's backward holds at a time. */
static int64_t most_temporaries(const struct piece *p, int half)
{
    int64_t live = 0, most = 0;

    for (int i = 0; i < p->nkernels[PASS_BACKWARD]; i++) {
        const struct kernel *k = &p->kernels[PASS_BACKWARD][i];
        if (k->half == half && live + k->peak[MEM_TEMPORARIES] > most)
            most = live + k->peak[MEM_TEMPORARIES];
        live += k->net[MEM_TEMPORARIES];
    }
    return most;
}

/* Beside the gradient of the residual stream: dX of the MLP's second matrix and of its
 * first; dO, dQ, dK, dV and a row sum. */
static void our_backward_holds_a_gradient_or_two(void **state)
{
    (void)state;
    struct built x;
    start(&x, gpt2_config, KERNELS_DPX, DT_BF16);
    x.plan.dropout = 0;
    build(&x);
    assert_int_equal(most_temporaries(&x.program.piece[PIECE_BLOCK], 1), 2 * (SBH + SBF));
    assert_int_equal(most_temporaries(&x.program.piece[PIECE_BLOCK], 0), 2 * 4 * SBH + 4 * ABS);
    finish(&x);
    start(&x, llama_config, KERNELS_DPX, DT_BF16);
    build(&x);
    assert_int_equal(most_temporaries(&x.program.piece[PIECE_BLOCK], 1), 2 * (SBH + 2 * SBF));
    assert_int_equal(most_temporaries(&x.program.piece[PIECE_BLOCK], 0), 2 * 3 * SBH + 4 * ABS);
    finish(&x);
}

/* ---- logits and loss ---- */

static int64_t head_peak(struct built *x, enum pass pass, int64_t vocab)
{
    struct span sp;

    x->plan.model.vocab = vocab;
    build(x);
    program_span(&x->program, PIECE_HEAD, pass, 0, x->program.piece[PIECE_HEAD].nkernels[pass],
                 GRADS_IN_PLACE, &sp);
    return sp.peak[MEM_ACTIVATIONS] + sp.peak[MEM_TEMPORARIES];
}

/* Bytes over sbV: 16-bit logits 2, their fp32 copy 4, log-probabilities 4 forward;
 * backward, on top of the saved 4, the gradients of log-probabilities and logits. */
static void logits_and_loss_in_multiples_of_sbv(void **state)
{
    (void)state;
    static const struct { enum kernel_set k; enum dtype t; int64_t forward, backward; } rule[] = {
        { KERNELS_TORCH_EAGER, DT_BF16, 2 + 4 + 4, 4 + 4 },
        { KERNELS_TORCH_EAGER, DT_FP32, 4 + 4, 4 + 4 },
        { KERNELS_DPX, DT_BF16, 2, 0 },
        { KERNELS_DPX, DT_FP32, 4, 0 },
    };
    for (size_t i = 0; i < sizeof rule / sizeof *rule; i++) {
        struct built x;
        start(&x, llama_config, rule[i].k, rule[i].t);
        for (int pass = 0; pass < NPASS; pass++) {
            int64_t more = head_peak(&x, (enum pass)pass, 2 * V) - head_peak(&x, (enum pass)pass, V);
            assert_int_equal(more, (pass ? rule[i].backward : rule[i].forward) * SB * V);
        }
        finish(&x);
    }
}

/* ---- segments ---- */

static void check_cut(const struct program *g, enum piece_id piece, enum pass pass, int cut, enum grad_fate fate)
{
    int n = g->piece[piece].nkernels[pass];
    struct span whole, a, b;
    int64_t before = 0, top_a = 0, top_b = 0, top = 0;

    program_span(g, piece, pass, 0, n, fate, &whole);
    program_span(g, piece, pass, 0, cut, fate, &a);
    program_span(g, piece, pass, cut, n, fate, &b);
    for (int m = 0; m < NMEM; m++) {
        assert_int_equal(a.net[m] + b.net[m], whole.net[m]);
        before += a.net[m];
        top += whole.peak[m];
        top_a += a.peak[m];
        top_b += b.peak[m];
    }
    assert_int_equal(top, top_a > before + top_b ? top_a : before + top_b);
    assert_close(a.flops + b.flops, whole.flops, 1e-12);
}

static const char *const families[] = { "gpt2.json", "llama-3.1-405b.json", "gemma-2-2b.json", "falcon-7b.json",
                                        "gpt-neox-20b.json", "bloom-560m.json", "gpt3-175b.json",
                                        "galactica-125m.json", "qwen3-0.6b.json", "phi-3-mini.json", "mpt-7b.json",
                                        "opt-1.3b.json", "starcoder2-3b.json", "falcon-40b.json", "falcon-rw-1b.json",
                                        "gemma2-biased-no-cap.json", "llama-all-biases-mqa.json", "qwen2.5-7b.json",
                                        "gpt2-untied-inner.json", "gpt-neox-tied-no-bias.json", "bloom-untied.json" };
enum { NFAMILIES = sizeof families / sizeof *families };

/* Every family, kernel set, precision and recompute with 5 blocks, every other one
 * recomputed where any is. */
/* torch-compile and recompute by operator are not for all; Megatron's kernels have test_te_program.c. */
static bool refused(struct plan *p)
{
    char why[512];

    if (kernels_are_megatron(p->kernels))
        return true;
    if (p->kernels == KERNELS_TORCH_COMPILE)
        p->dropout = 0;
    if (p->kernels != KERNELS_TORCH_COMPILE && p->recompute != RECOMPUTE_OP)
        return false;
    fail_capture(why, sizeof why);
    int rc = plan_check(p, "program");
    fail_capture(NULL, 0);
    return rc < 0;
}

static void each_program(void (*check)(struct built *))
{
    for (int f = 0; f < NFAMILIES; f++)
        for (int mode = 0; mode < NKERNELS * NRECOMPUTE * 3; mode++) {
            char path[128];
            struct built x = { 0 };
            int precision = mode / NKERNELS / NRECOMPUTE;
            snprintf(path, sizeof path, "tests/golden/models/configs/%s", families[f]);
            plan_of(&x.plan, path, 5, 8, precision == 2 ? STRAT_DDP : STRAT_FSDP, DIALECT_TORCH,
                    precision ? DT_BF16 : DT_FP32);
            x.plan.kernels = (enum kernel_set)(mode % NKERNELS);
            x.plan.recompute = (enum recompute)(mode / NKERNELS % NRECOMPUTE);
            x.plan.recompute_interval = 2;
            x.plan.micro_batch = 1 + mode % 2;
            x.plan.dropout = f % 2 ? 0 : 0.1;
            if (refused(&x.plan)) {
                plan_free(&x.plan);
                continue;
            }
            build(&x);
            check(&x);
            finish(&x);
        }
}

static void check_cuts(struct built *x)
{
    for (int piece = 0; piece < NPIECE; piece++)
        for (int pass = 0; pass < NPASS; pass++)
            for (int fate = GRADS_KEEP; fate <= GRADS_IN_PLACE; fate++)
                for (int cut = 0; cut <= x->program.piece[piece].nkernels[pass]; cut += 7)
                    check_cut(&x->program, (enum piece_id)piece, (enum pass)pass, cut, (enum grad_fate)fate);
}

static void segments_compose(void **state)
{
    (void)state;
    each_program(check_cuts);
}

static void add_span(const struct built *x, enum piece_id piece, enum pass pass, int64_t net[NMEM])
{
    struct span sp;

    program_span(&x->program, piece, pass, 0, x->program.piece[piece].nkernels[pass], GRADS_KEEP, &sp);
    for (int m = 0; m < NMEM; m++)
        net[m] += sp.net[m];
}

static void check_balance(struct built *x)
{
    int64_t net[NMEM] = { 0 }, grads = 0;
    const struct model *m = &x->plan.model;

    for (int pass = 0; pass < NPASS; pass++) {
        add_span(x, PIECE_EMBED, (enum pass)pass, net);
        add_span(x, PIECE_HEAD, (enum pass)pass, net);
        for (int64_t b = 0; b < m->layers; b++)
            add_span(x, program_piece_of_block(&x->plan, b), (enum pass)pass, net);
    }
    /* Of the dtype in which compute reads the parameter, under autocast of the parameter;
     * as large as the buffers in which lowerings keep gradients. */
    struct recipe r = plan_recipe(&x->plan);
    for (int i = 0; i < m->ntensors; i++)
        grads += round_up(m->tensors[i].numel * dtype_bytes(r.autocast ? DT_FP32 : r.used), 512);
    assert_int_equal(net[MEM_ACTIVATIONS], 0);
    assert_int_equal(net[MEM_TEMPORARIES], 0);
    assert_int_equal(net[MEM_GRADS], grads);
}

static void a_step_leaves_gradients_and_nothing_else(void **state)
{
    (void)state;
    each_program(check_balance);
}

static void check_ready(struct built *x)
{
    for (int piece = 0; piece < NPIECE; piece++) {
        const struct piece *p = &x->program.piece[piece];
        int n = program_ntensors(&x->plan, (enum piece_id)piece), seen[256] = { 0 };
        assert_true(n < 256);
        if (p->nkernels[PASS_BACKWARD] == 0)
            continue;
        for (int k = 0; k < p->nkernels[PASS_BACKWARD]; k++)
            for (int i = 0; i < 4 && p->kernels[PASS_BACKWARD][k].ready[i] >= 0; i++) {
                assert_true(p->kernels[PASS_BACKWARD][k].ready[i] < n);
                seen[p->kernels[PASS_BACKWARD][k].ready[i]]++;
            }
        for (int i = 0; i < n; i++)
            assert_int_equal(seen[i], 1);
    }
}

static void every_gradient_is_ready_once(void **state)
{
    (void)state;
    each_program(check_ready);
}

/* Forward runs the attention half, then the MLP's; backward the other way.  Parallel ones are no halves:
 * falcon norms for both before attention, and plans with unit half-block are refused.  A graph that DDPOptimizer cuts
 * hands its gradients out at its end, whichever half they are of. */
static void check_halves(struct built *x)
{
    if (x->plan.model.parallel || (x->plan.kernels == KERNELS_TORCH_COMPILE && x->plan.strategy == STRAT_DDP))
        return;
    for (int piece = PIECE_BLOCK; piece <= PIECE_BLOCK_RECOMPUTED; piece++)
        for (int pass = 0; pass < NPASS; pass++) {
            const struct piece *p = &x->program.piece[piece];
            int cut = program_half(&x->program, (enum piece_id)piece, (enum pass)pass, pass == PASS_FORWARD);
            for (int k = 0; k < p->nkernels[pass]; k++) {
                const struct kernel *kn = &p->kernels[pass][k];
                assert_int_equal(kn->half, (pass == PASS_FORWARD) == (k >= cut));
                for (int i = 0; i < 4 && kn->ready[i] >= 0; i++) {
                    int tensor = program_tensor(&x->plan, (enum piece_id)piece, 0, kn->ready[i]);
                    assert_int_equal(x->plan.model.tensors[tensor].mlp_half, kn->half);
                }
            }
        }
}

static void halves_are_contiguous_and_hold_their_gradients(void **state)
{
    (void)state;
    each_program(check_halves);
}

static bool reads_module(const struct piece *p, int pass, int module)
{
    for (int k = 0; k < p->nkernels[pass]; k++)
        if (p->kernels[pass][k].module == module)
            return true;
    return false;
}

static void check_modules(struct built *x)
{
    static const int block[NPIECE] = { [PIECE_EMBED] = TENSOR_EMBED, [PIECE_HEAD] = TENSOR_HEAD };
    const struct model *m = &x->plan.model;

    for (int piece = 0; piece < NPIECE; piece++) {
        int n = 0;
        for (int i = 0; i < m->nmodules; i++)
            n += m->modules[i].block == block[piece];
        for (int pass = 0; pass < NPASS && x->program.piece[piece].nkernels[pass]; pass++) {
            for (int i = 0; i < n; i++)
                assert_true(reads_module(&x->program.piece[piece], pass, i));
            assert_false(reads_module(&x->program.piece[piece], pass, n));
            if (piece == PIECE_HEAD && m->tied)
                assert_true(reads_module(&x->program.piece[piece], pass, MODULE_TIED));
        }
    }
}

static void every_module_is_read_by_a_kernel(void **state)
{
    (void)state;
    each_program(check_modules);
}

/* addmm's bias comes first; torch.autograd hands it to its hook before the weight. */
static void biases_are_ready_before_their_weights(void **state)
{
    (void)state;
    static const char *const order[] = {
        "mlp.c_proj.bias", "mlp.c_proj.weight", "mlp.c_fc.bias", "mlp.c_fc.weight", "ln_2.weight", "ln_2.bias",
        "attn.c_proj.bias", "attn.c_proj.weight", "attn.c_attn.bias", "attn.c_attn.weight", "ln_1.weight", "ln_1.bias",
    };
    struct built x;
    size_t at = 0;
    start(&x, gpt2_config, KERNELS_TORCH_EAGER, DT_FP32);
    build(&x);
    const struct piece *p = &x.program.piece[PIECE_BLOCK];
    for (int k = 0; k < p->nkernels[PASS_BACKWARD]; k++)
        for (int i = 0; i < 4 && p->kernels[PASS_BACKWARD][k].ready[i] >= 0; i++) {
            int tensor = program_tensor(&x.plan, PIECE_BLOCK, 1, p->kernels[PASS_BACKWARD][k].ready[i]);
            char want[64];
            snprintf(want, sizeof want, "transformer.h.1.%s", order[at++]);
            assert_string_equal(x.plan.model.tensors[tensor].name, want);
        }
    assert_int_equal(at, sizeof order / sizeof *order);
    finish(&x);
}

/* ---- work ---- */

/* 6 N a token for the matrices (the token embedding only as the head), 12 L h s for
 * attention in full, half of it when causal. */
static void check_flops(struct built *x)
{
    const struct model *m = &x->plan.model;
    double tokens = (double)(x->plan.seq * x->plan.micro_batch), weights = 0;
    double attention = 12.0 * (double)(m->layers * m->heads * m->head_dim * x->plan.seq) * tokens;

    for (int i = 0; i < m->ntensors; i++)
        if (m->tensors[i].ndim == 2 && (m->tied || m->tensors[i].role != ROLE_TOKENS) &&
            m->tensors[i].role != ROLE_POSITIONS)
            weights += (double)m->tensors[i].numel;
    if (x->plan.recompute != RECOMPUTE_NONE)
        return;
    assert_close(program_flops(&x->program, &x->plan, false), 6 * weights * tokens + attention, 1e-9);
    assert_close(program_flops(&x->program, &x->plan, true), 6 * weights * tokens + attention / 2, 1e-9);
}

static void flops_are_6n_and_12lhs(void **state)
{
    (void)state;
    each_program(check_flops);
}

static void full_recompute_runs_the_forward_again(void **state)
{
    (void)state;
    struct built x;
    start(&x, gpt2_config, KERNELS_DPX, DT_BF16);
    x.plan.recompute = RECOMPUTE_FULL;
    build(&x);
    const struct piece *plain = &x.program.piece[PIECE_BLOCK], *again = &x.program.piece[PIECE_BLOCK_RECOMPUTED];
    /* All but the last GEMM, whose result is not needed. */
    assert_close(again->flops[PASS_BACKWARD] - plain->flops[PASS_BACKWARD],
                 plain->flops[PASS_FORWARD] - 2.0 * SB * H * F, 1e-12);
    finish(&x);
}

static void absurd_sizes_are_refused(void **state)
{
    (void)state;
    struct built x;
    char why[256];
    start(&x, llama_config, KERNELS_TORCH_EAGER, DT_BF16);
    x.plan.seq = (int64_t)1 << 40;
    x.plan.micro_batch = (int64_t)1 << 30;
    fail_capture(why, sizeof why);
    for (int k = 0; k < NKERNELS; k++) {
        x.plan.kernels = (enum kernel_set)k;
        assert_int_equal(program_build(&x.plan, &x.program), -1);
        assert_non_null(strstr(why, "micro_batch"));
    }
    fail_capture(NULL, 0);
    finish(&x);
}

static int64_t dropped_of(const char *config, double embed, double attn, enum piece_id piece)
{
    struct built x;
    int64_t with, without;

    start(&x, config, KERNELS_TORCH_EAGER, DT_BF16);
    x.plan.model.dropout = 0.1;
    x.plan.model.embed_dropout = embed;
    x.plan.model.attn_dropout = attn;
    x.plan.dropout = 0.1;
    with = saved(&x, piece);
    x.plan.dropout = 0;
    without = saved(&x, piece);
    finish(&x);
    return with - without;
}

/* A mask of one byte an element where the config has a rate: of the embedding (starcoder2 by a function, GPT-NeoX by a module, both in modeling_*.py, whose
 * inputs_embeds has a name until forward ends: 2 sbh more, where GPT-2's sum with its positions is new in any case), of what both halves add, and of probabilities: 5 as2b against
 * 2 of Table 2's GPT block; a mask alone where softmax is in fp32, whose result in 16 bits is another tensor in any case. */
static void masks_are_where_the_config_has_rates(void **state)
{
    static const char starcoder2[] = "{'model_type': 'starcoder2', 'num_hidden_layers': 3, 'hidden_size': 256, 'intermediate_size': 1024, 'num_attention_heads': 4,"
                                     " 'num_key_value_heads': 4, 'vocab_size': 4096, 'max_position_embeddings': 128, 'sliding_window': null}";
    static const char neox[] = "{'model_type': 'gpt_neox', 'num_hidden_layers': 3, 'hidden_size': 256, 'intermediate_size': 1024, 'num_attention_heads': 4,"
                               " 'vocab_size': 4096, 'max_position_embeddings': 128}";
    static const struct { const char *config; int embed, scores; } rows[] = { { gpt2_config, 1, 3 }, { starcoder2, 3, 1 }, { neox, 3, 0 } };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(dropped_of(rows[i].config, 0.1, 0.1, PIECE_EMBED), rows[i].embed * SBH);
        assert_int_equal(dropped_of(rows[i].config, 0, 0, PIECE_EMBED), 0);
        assert_int_equal(dropped_of(rows[i].config, 0, 0, PIECE_BLOCK), 2 * SBH);
        assert_int_equal(dropped_of(rows[i].config, 0.1, 0.1, PIECE_BLOCK), 2 * SBH + rows[i].scores * AS2B);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_are_where_the_config_has_rates),
        cmocka_unit_test(eager_gpt_block_is_34_sbh_and_5_as2b),
        cmocka_unit_test(gelu_of_eight_kernels_saves_24_sbh_more),
        cmocka_unit_test(in_fp32_all_but_masks_and_statistics_doubles),
        cmocka_unit_test(flash_attention_drops_the_quadratic_term),
        cmocka_unit_test(recompute_keeps_34_or_2_sbh),
        cmocka_unit_test(llama_block_follows_from_its_parts),
        cmocka_unit_test(eager_grouped_queries_pay_for_all_heads),
        cmocka_unit_test(our_gpt_block_is_32_sbh),
        cmocka_unit_test(our_backward_holds_a_gradient_or_two),
        cmocka_unit_test(logits_and_loss_in_multiples_of_sbv),
        cmocka_unit_test(attention_has_a_matrix_for_each_head),
        cmocka_unit_test(segments_compose),
        cmocka_unit_test(a_step_leaves_gradients_and_nothing_else),
        cmocka_unit_test(every_gradient_is_ready_once),
        cmocka_unit_test(halves_are_contiguous_and_hold_their_gradients),
        cmocka_unit_test(every_module_is_read_by_a_kernel),
        cmocka_unit_test(biases_are_ready_before_their_weights),
        cmocka_unit_test(flops_are_6n_and_12lhs),
        cmocka_unit_test(full_recompute_runs_the_forward_again),
        cmocka_unit_test(absurd_sizes_are_refused),
    };
    return cmocka_run_group_tests_name("model/program", tests, NULL, NULL);
}
