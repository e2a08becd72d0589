/* megatron_rows.c -- see megatron_rows.h.  Rows are those of tests/accuracy/megatron.csv, each with its source; dense models in 16 bits, and in 8
 * (fp8_hybrid, delayed scaling, fp8_params: NeMo's bf16_with_fp8_mixed() and the configs themselves; fp8_amax_history_len 1024).
 *
 * NVIDIA's benchmarks come with their configs (llama3.1_70b.yaml, gpt3_175b_hydra.yaml, nemotron4-15b-synth.yaml ... of v24.11.1; of v25.04.02
 * pretrain_llama31.py): sequence_parallel, no recompute, grad_sync_dtype bf16 (grad_reduce_in_fp32 False), overlap_grad_sync and
 * overlap_param_sync, ub_tp_comm_overlap with tensor parallelism.  The papers: gradients in fp32 on every rank; sequence parallelism in
 * Korthikanti's selective rows alone.  Clipping at 1.
 * All of its launchers set NCCL_NVLS_ENABLE=0 (configure.sh, llama31_utils.py, slurm_executor() at NeMo 6f2c6fda).  The config of
 * GPT-3 175B has dropout of 0.1; its script of v24.11.1, and that of Nemotron 340B, set NVTE_FUSED_ATTN=0: flash-attn, not cuDNN.
 * GB200: racks of which 64 GPUs are used (128, 256 and 512 are multiples of that); Nemotron's and Grok-1's there ran as CUDA graphs, each layer
 * by itself (launch.sh of v25.05.05: --cuda_graphs true; NeMo 6f2c6fda: enable_cuda_graph).
 * Not among the rows, for what they state is too little: fine-tuning (no micro-batch), MaxText and Pax (XLA).
 * Nor DeepSeek-V3's own run (arXiv 2412.19437): 8-bit experts, DualPipe, multi-token prediction and kernels of its own, none of which this
 * dialect has: a plan of it in 16 bits under 1F1B would be of another program.
 * Where layers do not divide by the stages, embedding and head take a layer's place.  A micro-batch that is not stated (Narayanan et al.) is the
 * fastest of 1, 2, 4 and 8 that fits, by dpx.  fp16 is planned as bf16: as many bytes and the same peak on these GPUs.  Kernels are
 * `te`, of the papers `megatron-local`: they had neither Transformer Engine nor fused attention.
 *
 * Grok-1's rows (tests/accuracy/experts.csv; grok1_314b.yaml of v24.11.1): eight experts of which a token takes two, experts that the
 * tensor-parallel ranks cut (expert_tensor_parallel_size is theirs; v25.05.05 states it: ETP, 1 on H100), average_in_collective,
 * the vocabulary of Llama-3-70B's tokenizer, a capacity factor of 1 with padding (MegatronTokenDropCallback).  grok1/configure.sh of v24.11.1 and
 * v25.02 overrides the yaml: ub_tp_comm_overlap=true, fp8_params where fp8, and NVTE_FUSED_ATTN=0; v25.05.05's recipe has the overlap, too
 * (pretrain_grok1_314b.py at NeMo 6f2c6fda: MegatronCommOverlapCallback(tp_comm_overlap=True)).  Its
 * auxiliary loss (a sum of 8 numbers a layer) dpx leaves out, and where a rank has several experts they run one after
 * the other (moe_grouped_gemm false).
 *
 * LoRA (tests/accuracy/adapters.csv; llama3/finetuning/llama3_finetune.py of v25.02: micro-batches of 1 sample, sequence_parallel, gradients in
 * bf16) with dim 16 beside linear_qkv, as NVIDIA's performance recipes have it (Megatron-Bridge 067f987d, perf_recipes/llama/h100/llama3.py), and
 * without tp_comm_overlap.  4,096 positions are SQuAD's samples, packed (SquadDataModule): a paragraph, a question and an answer have some 130
 * words, and attention is among those alone.  They are planned as 16 samples of 256, of which attention is 1 % of a step or less.
 *
 * Narayanan's table has TFLOP/s: 96 B s l h^2 (1 + s/6h + V/16lh) of a step, recompute counted (their equation 3). */
#include "tests/accuracy/megatron_rows.h"

#include <math.h>

#include "base/fail.h"
#include "model/arch/builtin.h"
#include "model/arch/training.h"
#include "sim/clock/simulate.h"
#include "sim/search/ties.h"
#include "tests/accuracy/csv_table.h"

enum { ROWS = 256, VOCAB = 51200, SQUAD = 256 };

struct row {
    char    source[96], model[40], gpu[16], skipped[96], adapters[32];
    int64_t hidden, layers, heads, gpus, tp, cp, pp, vp, ep, etp, dp, seq, micro_batch, batch;
    bool    paper, fp8, flash, full, selective;     /* recompute, with sequence parallelism where selective */
    double  step_s, gib;                /* published; 0: not stated */
    double  predicted_s, predicted_gib, idle, exposed, low_s, high_s, mfu;     /* mfu: of the prediction */
    bool    done, fits;
};

static void read_row(const struct table *t, struct row *r)
{
    TEXT(r->source, get(t, "source"));
    TEXT(r->model, get(t, "model"));
    TEXT(r->gpu, get(t, "gpu"));
    r->hidden = (int64_t)number(t, "hidden"), r->layers = (int64_t)number(t, "layers"), r->heads = (int64_t)number(t, "heads");
    r->gpus = (int64_t)number(t, "n_gpus"), r->tp = (int64_t)number(t, "tp"), r->cp = (int64_t)number(t, "cp");
    r->pp = (int64_t)number(t, "pp"), r->vp = (int64_t)number(t, "vp"), r->dp = (int64_t)number(t, "dp");
    r->seq = (int64_t)number(t, "seq"), r->micro_batch = (int64_t)number(t, "micro_batch"), r->batch = (int64_t)number(t, "global_batch");
    TEXT(r->adapters, get(t, "adapters"));
    r->ep = (int64_t)number(t, "ep"), r->etp = (int64_t)number(t, "etp");
    r->paper = r->hidden > 0;
    r->fp8 = !strcmp(get(t, "precision"), "fp8");
    r->flash = (strstr(r->source, "v24.11.1") && (strstr(r->model, "175B") || strstr(r->model, "340B")))
            || (r->ep > 0 && !strstr(r->source, "v25.05.05"));
    r->full = !strncmp(get(t, "recompute"), "full", 4);
    r->selective = strstr(get(t, "recompute"), "selective") != NULL;
    r->step_s = number(t, "step_s");
    r->gib = number(t, "mem_gib");
    if (number(t, "tflops_gpu") > 0) {
        double h = (double)r->hidden, l = (double)r->layers, s = (double)r->seq;
        double flops = 96 * (double)r->batch * s * l * h * h * (1 + s / (6 * h) + VOCAB / (16 * l * h));
        r->step_s = flops / (number(t, "tflops_gpu") * 1e12 * (double)r->gpus);
    }
}

/* ---- plans ---- */

static int from_config(json_t *config, const char *name, struct model *out)
{
    int rc = config ? model_from_config(config, name, out) : fail("out of memory");

    json_decref(config);
    return rc;
}

static int gpt(const struct row *r, struct model *out)
{
    return from_config(json_pack("{s:s, s:I, s:I, s:I, s:I, s:i, s:s, s:f, s:f, s:f}", "model_type", "gpt2", "n_layer", (json_int_t)r->layers,
        "n_embd", (json_int_t)r->hidden, "n_head", (json_int_t)r->heads, "n_positions", (json_int_t)r->seq, "vocab_size", VOCAB,
        "activation_function", "gelu_new", "resid_pdrop", 0.1, "embd_pdrop", 0.1, "attn_pdrop", 0.1), r->model, out);
}

/* arXiv 2402.16819 and 2406.11704, table 1 each: squared ReLU of four times the width, rotary positions of half a head, no biases. */
static int nemotron(bool large, struct model *out)
{
    return from_config(json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:f, s:b}", "model_type", "nemotron", "num_hidden_layers",
        large ? 96 : 32, "hidden_size", large ? 18432 : 6144, "intermediate_size", large ? 73728 : 24576, "num_attention_heads", large ? 96 : 48,
        "num_key_value_heads", 8, "vocab_size", 256000, "max_position_embeddings", 4096, "hidden_act", "relu2", "partial_rotary_factor", 0.5,
        "tie_word_embeddings", 0), large ? "nemotron-4-340b" : "nemotron-4-15b", out);
}

/* "Llama3.1 405B uses the GPT2BPETokenizer as a proxy" (README_405b.md of v24.11.1; configure.sh of v25.02: megatron-gpt2-345m), so its vocabulary
 * is 50,257, rounded up to make_vocab_size_divisible_by times the tensor-parallel ranks: VOCAB. */
static int llama_of_gpt2_words(struct model *out)
{
    return from_config(json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:b}", "model_type", "llama", "num_hidden_layers", 126, "hidden_size",
        16384, "intermediate_size", 53248, "num_attention_heads", 128, "num_key_value_heads", 8, "vocab_size", VOCAB, "max_position_embeddings",
        131072, "rms_norm_eps", 1e-5, "tie_word_embeddings", 0), "llama-3.1-405b", out);
}

static bool has_gpt2_words(const struct row *r)
{
    return strstr(r->model, "405B") && (strstr(r->source, "v24.11.1") || strstr(r->source, "v25.02"));
}

static int grok(const struct row *r, struct model *out)
{
    return from_config(json_pack("{s:s, s:I, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:b}", "model_type", "mixtral", "num_hidden_layers",
        (json_int_t)r->layers, "hidden_size", 6144, "intermediate_size", 32768, "num_attention_heads", 48, "num_key_value_heads", 8, "vocab_size", 128256,
        "max_position_embeddings", 32768, "num_local_experts", 8, "num_experts_per_tok", 2, "tie_word_embeddings", 0), r->model, out);
}

static int model_of(const struct row *r, struct model *out)
{
    struct model whole;

    if (r->paper)
        return gpt(r, out);
    if (r->ep > 0)
        return grok(r, out);
    if (!strncmp(r->model, "Nemotron", 8))
        return nemotron(strstr(r->model, "340") != NULL, out);
    const char *name = strstr(r->model, "175B") ? "gpt3-175b" : strstr(r->model, "405B") ? "llama-3.1-405b"
                     : strstr(r->model, "70B") ? "llama-3.1-70b" : "llama-3.1-8b";
    if ((has_gpt2_words(r) ? llama_of_gpt2_words(&whole) : model_load(name, &whole)) < 0)
        return -1;
    int rc = model_with_layers(&whole, r->layers > 0 ? r->layers : whole.layers, out);
    model_free(&whole);
    return rc;
}

/* optim.name of the configs is distributed_fused_adam, Apex's, of which NeMo 24.09 says (megatron_gpt_model.py, setup_optimization()): moments in
 * optim.dtype, fp32 where it is not stated; beside parameters in bf16 not a copy in fp32 but what they lack of it, beside fp8_params a copy. */
static bool is_apex(const struct row *r)
{
    return strstr(r->source, "v24.11.1") ? r->ep == 0 : strstr(r->source, "v25.02") && r->ep == 0 && !r->adapters[0] && !strstr(r->model, "Nemotron");
}

/* cross_entropy_loss_fusion: the yaml files of v24.11.1 and v25.02 have it, but for GPT-3 and Grok-1; NeMo 2's GPTConfig has it
 * (d2b21556 of v25.04.02, 6f2c6fda of v25.05.05, whose set_primary_perf_configs() asks for Transformer Engine's kernel), but beside LoRA. */
static enum loss_kind loss_of(const struct row *r)
{
    if (r->paper || r->adapters[0])
        return LOSS_FP32;
    if (strstr(r->source, "v25.05.05"))
        return LOSS_FUSED;
    return strstr(r->source, "v25.04.02") || !(strstr(r->model, "175B") || r->ep > 0) ? LOSS_COMPILED : LOSS_FP32;
}

static void keep_states(const struct row *r, struct plan *p)
{
    if (strstr(r->source, "v25.05.05") && !r->fp8)      /* set_primary_perf_configs() */
        p->megatron.use_precision_aware_optimizer = true;
    if (!is_apex(r) || r->fp8)
        return;
    p->megatron.use_precision_aware_optimizer = p->megatron.store_param_remainders = true;
    if (strstr(r->model, "340B"))       /* nemotron4-340b-synth.yaml: dtype: bf16: 4 bytes, planned as 6 */
        p->megatron.exp_avg_dtype = p->megatron.exp_avg_sq_dtype = ADAM_BF16;
}

/* In fp8 Nemotron's dtype: bf16 is that of both moments and of the copy (megatron_base_model.py: store_params beside fp8_params; Apex keeps it in
 * the optimizer's type): 6 bytes.  Planned as 12, for Megatron-LM has no such optimizer: half of them do not count. */
static bool row_fits(const struct row *r, const struct evaluation *e)
{
    bool half = is_apex(r) && r->fp8 && strstr(r->model, "340B");

    return e->verdict != VERDICT_DOES_NOT_FIT || (half && e->m.needed - e->m.ledger.most[CAT_OPTIMIZER] / 2 <= e->m.available);
}

/* Beside frozen weights. */
static int adapt(const struct row *r, struct plan *p)
{
    if (!r->adapters[0])
        return 0;
    strcpy(p->train.what, "lora");
    TEXT(p->train.target_modules, r->adapters);
    p->train.rank = 16;
    p->train.bridge = true;
    p->megatron.tp_comm_overlap = false;
    strcpy(p->framework_version, "0.13");       /* NeMo 24.12 has Transformer Engine 1.13 */
    p->micro_batch *= p->seq / SQUAD;
    p->seq = SQUAD;
    return training_apply(&p->model, &p->train, r->model);
}

static int plan_of(const struct row *r, int64_t micro_batch, struct plan *p)
{
    char spec[48];

    memset(p, 0, sizeof *p);
    if (model_of(r, &p->model) < 0)
        return -1;
    int node = strcmp(r->gpu, "gb200") ? 8 : 64;
    snprintf(spec, sizeof spec, "%dx%dx%s", (int)(r->gpus / node), node, r->gpu);
    if (cluster_load(spec, &p->cluster) < 0) {
        plan_free(p);
        return -1;
    }
    p->cluster.nccl.nvls = r->paper ? NVLS_AUTO : NVLS_OFF;
    p->seq = r->seq;
    p->micro_batch = micro_batch;
    plan_defaults(p, r->paper ? STRAT_DDP : STRAT_ZERO1, DIALECT_MEGATRON, DT_BF16);
    p->accumulation = r->batch / (micro_batch * r->dp);
    p->kernels = r->paper ? KERNELS_MEGATRON_LOCAL : KERNELS_TE;
    p->reduce_dtype = r->paper ? DT_FP32 : DT_BF16;
    p->clip = 1;
    p->loss = loss_of(r);
    p->megatron.attention_backend = r->flash ? BACKEND_FLASH : BACKEND_AUTO;
    p->dropout = r->paper || strstr(r->model, "175B") ? 0.1 : 0;
    if (r->fp8) {
        p->megatron.fp8_format = FP8_HYBRID;
        p->megatron.fp8_recipe = FP8_DELAYED;
        p->megatron.fp8_param_gather = true;
        p->megatron.fp8_amax_history_len = 1024;
    }
    p->recompute = r->full ? RECOMPUTE_FULL : r->selective ? RECOMPUTE_SELECTIVE : RECOMPUTE_NONE;
    p->megatron.overlap_grad_reduce = p->megatron.overlap_param_gather = !r->paper;
    p->parallel.tensor = r->tp, p->parallel.context = r->cp, p->parallel.pipeline = r->pp, p->parallel.virtual_stages = r->vp;
    p->megatron.tp_comm_overlap = r->tp > 1 && !r->paper;
    if (r->ep > 0) {
        p->megatron.moe_expert_capacity_factor = 1;
        p->megatron.moe_pad_expert_input_to_capacity = true;
    }
    p->megatron.cuda_graph_impl = !strcmp(r->gpu, "gb200") && !strstr(r->model, "405B") ? GRAPHS_LOCAL : GRAPHS_NONE;
    p->megatron.ddp_average_in_collective = r->ep > 0;
    keep_states(r, p);
    p->parallel.expert = r->ep > 0 ? r->ep : 1;
    p->parallel.expert_tensor = r->ep > 0 ? r->etp : 1;
    p->parallel.sequence = r->tp > 1 && (!r->paper || r->selective);
    p->parallel.loss_parallel = true;
    p->parallel.context_method = r->cp > 1 ? CONTEXT_RING : p->parallel.context_method;
    p->parallel.context_balance = r->cp > 1 || p->parallel.context_balance;
    p->parallel.pipeline_schedule = r->vp > 1 ? PIPELINE_INTERLEAVED : PIPELINE_1F1B;
    p->parallel.first_stage_less = p->parallel.last_stage_less = p->model.layers % (r->pp * r->vp) != 0;
    p->megatron.microbatch_group_size_per_vp_stage = r->vp > 1 ? r->pp : -1;
    p->shard_group = plan_data_ranks(p);
    plan_resolve(p);
    if (adapt(r, p) < 0 || plan_check(p, r->model) < 0) {
        plan_free(p);
        return -1;
    }
    return 0;
}

/* ---- prediction ---- */

static int predict_with(struct row *r, int64_t micro_batch)
{
    struct plan p;
    struct evaluation e;
    struct timing t;

    if (plan_of(r, micro_batch, &p) < 0)
        return -1;
    if (evaluate_allocated(&p, &e) < 0) {
        plan_free(&p);
        return -1;
    }
    int rc = r->step_s > 0 ? simulate_plan(&p, &e, &t, NULL) : (memset(&t, 0, sizeof t), 0);
    bool fits = row_fits(r, &e);
    bool better = !r->done || fits > r->fits || (fits == r->fits && t.line.step_s < r->predicted_s);
    if (rc == 0 && better) {
        const struct memory_verdict *m = e.stage ? &e.stage[0].m : &e.m;
        r->done = true;
        r->fits = fits;
        r->predicted_s = t.line.step_s;
        r->predicted_gib = (double)m->ledger.most[CAT_ACTIVATIONS] / 0x1p30;
        r->idle = t.line.idle_s;
        r->low_s = t.low_s, r->high_s = t.high_s, r->mfu = t.mfu;
        r->exposed = t.line.exposed_s;
        r->micro_batch = micro_batch;
    }
    evaluation_free(&e);
    plan_free(&p);
    return rc;
}

/* The same plan, published again. */
static bool same_plan(const struct row *a, const struct row *b)
{
    return !strcmp(a->model, b->model) && !strcmp(a->gpu, b->gpu) && a->paper == b->paper && a->fp8 == b->fp8 && a->flash == b->flash && is_apex(a) == is_apex(b) && loss_of(a) == loss_of(b) && has_gpt2_words(a) == has_gpt2_words(b) && a->layers == b->layers && a->gpus == b->gpus &&
           a->tp == b->tp && a->cp == b->cp && a->ep == b->ep && a->etp == b->etp && a->pp == b->pp && a->vp == b->vp && a->dp == b->dp && a->seq == b->seq && a->batch == b->batch &&
           a->micro_batch == b->micro_batch && !strcmp(a->adapters, b->adapters) && a->full == b->full && a->selective == b->selective && (a->step_s > 0) == (b->step_s > 0);
}

static bool predicted_before(struct row *r, const struct row *others, int n)
{
    for (int i = 0; i < n; i++)
        if (others[i].done && same_plan(r, &others[i])) {
            r->predicted_s = others[i].predicted_s, r->predicted_gib = others[i].predicted_gib;
            r->idle = others[i].idle, r->exposed = others[i].exposed, r->low_s = others[i].low_s, r->high_s = others[i].high_s, r->mfu = others[i].mfu;
            r->fits = others[i].fits;
            return r->done = true;
        }
    return false;
}

static void predict(struct row *r)
{
    char why[96];
    int64_t stated = r->micro_batch;

    fail_capture(why, sizeof why);
    for (int64_t b = stated ? stated : 1; b <= (stated ? stated : 8); b *= 2)
        if (r->batch % (b * r->dp) == 0 && predict_with(r, b) < 0)
            TEXT(r->skipped, why);
    fail_capture(NULL, 0);
    if (r->done)
        r->skipped[0] = '\0';
}

/* ---- printing ---- */

static double error_of(const struct row *r) { return r->step_s > 0 ? r->predicted_s / r->step_s - 1 : r->predicted_gib / r->gib - 1; }

enum among { OF_SOURCE, OF_GPU, OF_ALL };

/* Of one source, model, GPU and precision; of a GPU and precision. */
static bool alike(const struct row *a, const struct row *b, enum among among)
{
    bool gpu = !strcmp(a->gpu, b->gpu) && a->fp8 == b->fp8 && a->paper == b->paper;

    return among == OF_ALL || (gpu && (among == OF_GPU || (!strcmp(a->source, b->source) && !strcmp(a->model, b->model))));
}

static void print_score(const char *what, const struct row *row, int n, const struct row *like, enum among among, bool times)
{
    double sum = 0, bias = 0, worst = 0;
    int rows = 0, near = 0;

    for (int i = 0; i < n; i++) {
        const struct row *r = &row[i];
        if (!r->done || (r->step_s > 0) != times || !alike(r, like, among))
            continue;
        double e = error_of(r);
        rows++;
        near += fabs(e) <= (!times ? 0.03 : r->fp8 || r->ep ? 0.12 : 0.08);
        sum += fabs(e);
        bias += e;
        worst = fabs(e) > fabs(worst) ? e : worst;
    }
    if (rows)
        printf("  %-74s %4d %6.1f %+6.1f %+7.1f %5d\n", what, rows, 100 * sum / rows, 100 * bias / rows, 100 * worst, near);
}

static void print_scores(const struct row *row, int n, bool times)
{
    printf("  %-74s %4s %6s %6s %7s %5s\n", times ? "step time, errors in %" : "activations of a rank of the first stage, errors in %", "rows",
           "MAPE", "bias", "worst", times ? "near" : "<= 3");
    for (enum among among = OF_SOURCE; among <= OF_GPU; among++)
        for (int i = 0; i < n; i++) {
            char what[160];
            bool first = true;
            for (int j = 0; j < i; j++)
                first = first && !alike(&row[j], &row[i], among);
            snprintf(what, sizeof what, "%.50s, %s, %s, %s", among == OF_GPU ? row[i].paper ? "papers" : "NVIDIA" : row[i].source,
                     among == OF_GPU ? "together" : row[i].model, row[i].gpu, row[i].fp8 ? "fp8" : "16 bits");
            if (first)
                print_score(what, row, n, &row[i], among, times);
        }
    print_score(row->ep ? "together, experts" : row->adapters[0] ? "together, adapters" : "together, dense", row, n, row, OF_ALL, times);
}

/* A model's FLOPs over the published step: what people take a median of. */
static double published_mfu(const struct row *r) { return r->mfu * r->predicted_s / r->step_s; }

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The naive answer: one MFU for a GPU and precision, the median of the rows of all other models; 0: there are none. */
static double one_mfu(const struct row *row, int n, const struct row *of)
{
    double others[ROWS];
    int m = 0;

    for (int i = 0; i < n; i++)
        if (row[i].done && row[i].step_s > 0 && alike(&row[i], of, OF_GPU) && strcmp(row[i].model, of->model))
            others[m++] = published_mfu(&row[i]);
    qsort(others, (size_t)m, sizeof *others, by_size);
    return m ? (others[m / 2] + others[(m - 1) / 2]) / 2 : 0;
}

struct cover { int rows, inside, fit, refused, skipped, naive; double width, miss; };

static struct cover cover_of(const struct row *row, int n, const struct row *like)
{
    struct cover c = { 0 };

    for (int i = 0; i < n; i++) {
        const struct row *r = &row[i];
        if (!alike(r, like, OF_GPU) || !(r->step_s > 0))
            continue;
        c.rows++;
        c.skipped += !r->done;
        if (!r->done)
            continue;
        c.fit += r->fits;
        c.refused += !r->fits;
        c.inside += r->step_s >= r->low_s && r->step_s <= r->high_s;
        c.width += (r->high_s - r->low_s) / r->predicted_s;
        double usual = one_mfu(row, n, r);
        c.naive += usual > 0;
        c.miss += usual > 0 ? fabs(published_mfu(r) / usual - 1) : 0;
    }
    return c;
}

/* All of these ran: by GPU and precision how many fit, are refused, and why not planned; intervals; and one median MFU. */
static void print_coverage(const struct row *row, int n)
{
    printf("  %-32s %5s %5s %8s %12s %8s %6s %22s\n", "all ran", "rows", "fit", "refused", "not planned", "in, %", "width", "one median MFU: MAPE");
    for (int i = 0; i < n; i++) {
        bool first = true;
        char what[64];
        for (int j = 0; j < i; j++)
            first = first && !alike(&row[j], &row[i], OF_GPU);
        const struct cover c = cover_of(row, n, &row[i]);
        int done = c.rows - c.skipped;
        if (!first || !done)
            continue;
        snprintf(what, sizeof what, "%s, %s, %s", row[i].paper ? "papers" : "NVIDIA", row[i].gpu, row[i].fp8 ? "fp8" : "16 bits");
        printf("  %-32s %5d %5d %8d %12d %8d %6.0f ", what, c.rows, c.fit, c.refused, c.skipped, 100 * c.inside / done, 100 * c.width / done);
        if (c.naive)
            printf("%22.1f\n", 100 * c.miss / c.naive);
        else
            printf("%22s\n", "-");
    }
}

static void print_row(const struct row *r)
{
    printf("  %+6.1f  %-15s %4d %-5s %-4s t%d c%d p%d v%d d%d  %5d x %d of %-5d ", 100 * error_of(r), r->model, (int)r->gpus, r->gpu, r->fp8 ? "fp8" : "16", (int)r->tp,
           (int)r->cp, (int)r->pp, (int)r->vp, (int)r->dp, (int)r->seq, (int)r->micro_batch, (int)r->batch);
    if (r->step_s > 0)
        printf("%8.3f of %8.3f s  exposed %4.1f idle %4.1f %%%s\n", r->predicted_s, r->step_s, 100 * r->exposed / r->predicted_s, 100 * r->idle / r->predicted_s,
               r->fits ? "" : "  does not fit");
    else
        printf("%8.3f of %8.3f GiB\n", r->predicted_gib, r->gib);
}

/* ---- which configuration is the best ---- */

/* Configurations of one problem: the same source, model, GPUs and samples of a step. */
static bool same_problem(const struct row *a, const struct row *b)
{
    return a->done && b->done && a->step_s > 0 && b->step_s > 0 && alike(a, b, OF_SOURCE) && a->layers == b->layers && a->hidden == b->hidden &&
           a->gpus == b->gpus && a->seq == b->seq && a->batch == b->batch;
}

static int views_of(const struct row *r, double view[TIES_VIEWS])
{
    struct coll_memo memo = { 0 };
    struct evaluation e;
    struct plan p;
    int rc = -1;

    if (plan_of(r, r->micro_batch, &p) < 0)
        return -1;
    if (evaluate_allocated(&p, &e) == 0) {
        struct cost_cache *cache = cost_cache_new(&p);
        rc = ties_views(&p, &e, cache, &memo, view);
        cost_cache_free(cache);
        evaluation_free(&e);
    }
    plan_free(&p);
    return rc;
}

/* Is what was fastest as fast as what is predicted to be, for all that the clock can tell? */
static bool is_tie(const struct row *best, const struct row *chosen)
{
    double a[TIES_VIEWS], b[TIES_VIEWS];

    return views_of(best, a) == 0 && views_of(chosen, b) == 0 && fabs(a[0] - b[0]) <= ties_unsure_s(a, b);
}

static void print_best(const struct row *row, int n)
{
    int problems = 0, first = 0, ties = 0;

    for (int i = 0; i < n; i++) {
        const struct row *best = &row[i], *chosen = &row[i];
        bool seen = false, several = false;
        for (int j = 0; j < n; j++) {
            if (!same_problem(&row[i], &row[j]))
                continue;
            seen |= j < i;
            several |= !same_plan(&row[i], &row[j]);
            best = row[j].step_s < best->step_s ? &row[j] : best;
            chosen = row[j].predicted_s < chosen->predicted_s ? &row[j] : chosen;
        }
        if (seen || !several)
            continue;
        problems++;
        if (best == chosen || same_plan(best, chosen))
            first++;
        else if (is_tie(best, chosen))
            ties++;
        else
            printf("  not the best: %s, %d GPUs: the fastest of its source is predicted %.1f %% behind another\n", best->model, (int)best->gpus,
                   100 * (best->predicted_s / chosen->predicted_s - 1));
    }
    if (problems)
        printf("  %d problems of which a source has several configurations: the fastest is ranked first in %d, a tie with the first in %d\n", problems,
               first, ties);
}

/* Activations alone are no step. */
static void add_results(const struct row *row, int n, struct results *all)
{
    int problem[ROWS] = { 0 };

    for (int i = 0; i < n; i++) {
        const struct row *r = &row[i];
        char kind[64];
        if (!(r->step_s > 0))
            continue;
        for (int j = 0; j < i && !problem[i]; j++)
            problem[i] = same_problem(r, &row[j]) ? problem[j] : 0;
        if (!problem[i])
            problem[i] = ++all->problems;
        double usual = r->done ? one_mfu(row, n, r) : 0;
        snprintf(kind, sizeof kind, "Megatron-LM, %s%s, %s, %s", r->ep ? "experts" : r->adapters[0] ? "LoRA" : "dense", r->paper ? " (papers)" : "",
                 r->fp8 ? "fp8" : "16 bits", r->gpu);
        struct result *of = results_add(all, kind);
        TEXT(of->why, r->skipped);
        of->problem = problem[i];
        of->published_s = r->step_s, of->predicted_s = r->done ? r->predicted_s : 0, of->low_s = r->low_s, of->high_s = r->high_s;
        of->guess_s = usual > 0 ? r->mfu * r->predicted_s / usual : 0;
        of->refused = r->done && !r->fits;
    }
}

static int done_of(const struct row *row, int n)
{
    int done = 0;

    for (int i = 0; i < n; i++)
        done += row[i].done;
    return done;
}

int megatron_rows_print(const char *path, int rows, struct results *all)
{
    static struct row row[ROWS];
    struct table *t = calloc(1, sizeof *t);
    FILE *in = fopen(path, "r");
    int n = 0;

    memset(row, 0, sizeof row);
    if (!t || !in || !fgets(t->head, LINE, in)) {
        if (in)
            fclose(in);
        free(t);
        return fail("%s: cannot be read; run from the top of the source tree", path);
    }
    t->names = split(t->head, t->name);
    for (; n < ROWS && fgets(t->line, LINE, in); n++) {
        t->fields = split(t->line, t->field);
        read_row(t, &row[n]);
        if (!row[n].skipped[0] && !predicted_before(&row[n], row, n))
            predict(&row[n]);
    }
    fclose(in);
    free(t);
    if (done_of(row, n) == 0)
        return fail("%s: no row is predicted: %s", path, n ? row[0].skipped : "there are none");
    print_scores(row, n, true);
    if (!row->ep && !row->adapters[0])
        print_scores(row, n, false);
    print_coverage(row, n);
    print_best(row, n);
    add_results(row, n, all);
    for (int i = 0; i < n; i++)
        if (row[i].skipped[0] && (i == 0 || strcmp(row[i].skipped, row[i - 1].skipped)))
            printf("  skipped: %s, %d GPUs: %s\n", row[i].model, (int)row[i].gpus, row[i].skipped);
    for (int i = 0; i < n && rows; i++)
        if (row[i].done)
            print_row(&row[i]);
    return 0;
}
