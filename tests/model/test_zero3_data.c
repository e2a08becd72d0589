/* Data of stage 3 under its own options, at sizes that cut the model of a few hundred elements in
 * many buckets, gathers and sub-groups (test_dataflow.c draws most of them larger than the model). */
#include "tests/model/dataflow_run.h"
#include "tests/model/happens_before.h"
#include "tests/model/plans.h"
#include "tests/model/random_plan.h"

/* Families with a tree of modules of their own, and without; a tied head; norms of q and k; norms
 * after attention and MLP; one norm for both. */
static const char *const configs[] = {
    "{'model_type': 'gpt2', 'n_layer': 3, 'n_embd': 8, 'n_head': 2, 'n_positions': 8, 'vocab_size': 11}",
    "{'model_type': 'llama', 'num_hidden_layers': 2, 'hidden_size': 12, 'intermediate_size': 20,"
    " 'num_attention_heads': 6, 'num_key_value_heads': 2, 'vocab_size': 13,"
    " 'tie_word_embeddings': false}",
    "{'model_type': 'qwen3', 'num_hidden_layers': 2, 'hidden_size': 8, 'intermediate_size': 12,"
    " 'head_dim': 4, 'num_attention_heads': 2, 'num_key_value_heads': 1, 'vocab_size': 7,"
    " 'tie_word_embeddings': true}",
    "{'model_type': 'gemma2', 'num_hidden_layers': 2, 'hidden_size': 8, 'intermediate_size': 12,"
    " 'head_dim': 4, 'num_attention_heads': 2, 'num_key_value_heads': 1, 'vocab_size': 7}",
    "{'model_type': 'phi3', 'num_hidden_layers': 2, 'hidden_size': 8, 'intermediate_size': 12,"
    " 'num_attention_heads': 2, 'num_key_value_heads': 1, 'vocab_size': 7}",
    "{'model_type': 'opt', 'num_hidden_layers': 2, 'hidden_size': 10, 'ffn_dim': 14,"
    " 'num_attention_heads': 2, 'vocab_size': 9, 'max_position_embeddings': 8,"
    " 'word_embed_proj_dim': 10, 'tie_word_embeddings': true}",
    "{'model_type': 'gpt_neox', 'num_hidden_layers': 2, 'hidden_size': 8, 'intermediate_size': 12,"
    " 'num_attention_heads': 2, 'vocab_size': 7, 'rotary_pct': 1.0}",
    "{'model_type': 'falcon', 'num_hidden_layers': 2, 'hidden_size': 8, 'num_attention_heads': 2,"
    " 'multi_query': true, 'parallel_attn': true, 'vocab_size': 7}",
    "{'model_type': 'bloom', 'n_layer': 2, 'hidden_size': 8, 'n_head': 2, 'vocab_size': 7}",
};
enum { NCONFIGS = sizeof configs / sizeof *configs };

static struct model model[NCONFIGS];

static int load_models(void **state)
{
    (void)state;
    for (int i = 0; i < NCONFIGS; i++) {
        char text[400];
        size_t n = strlen(configs[i]);
        assert_true(n < sizeof text);
        for (size_t k = 0; k <= n; k++)
            text[k] = configs[i][k] == '\'' ? '"' : configs[i][k];
        json_t *j = json_loads(text, 0, NULL);
        if (!j || model_from_config(j, configs[i], &model[i]) < 0)
            return -1;
        json_decref(j);
    }
    return 0;
}

static int free_models(void **state)
{
    (void)state;
    for (int i = 0; i < NCONFIGS; i++)
        model_free(&model[i]);
    return 0;
}

static int64_t up_to(uint64_t *rng, int bits) { return (int64_t)1 << draw(rng, (uint32_t)bits); }

/* Half of the plans leave everything on the device. */
static void draw_offload(struct plan *p, uint64_t *rng)
{
    static const double ratios[] = { 1, 1, 0.7, 0.5, 0 };
    struct deepspeed_options *o = &p->ds;

    if (draw(rng, 2))
        return;
    p->limits.ds_aio_least = o->aio.block_size = up_to(rng, 8);
    p->limits.ds_aio_align = 4 * up_to(rng, 4);
    o->aio.intra_op_parallelism = 1 + draw(rng, 3);
    o->offload_optimizer.device = (enum offload_device)draw(rng, 3);
    o->offload_optimizer.buffer_count = 12;
    o->offload_optimizer.pipeline_read = draw(rng, 2);
    o->offload_optimizer.pipeline_write = draw(rng, 2);
    o->offload_optimizer.pin_memory = draw(rng, 2);
    o->offload_optimizer.ratio = ratios[draw(rng, 5)];
    o->offload_param.device = (enum offload_device)draw(rng, 3);
    o->offload_param.buffer_count = 250;
    o->offload_param.buffer_size = 512;
    o->offload_param.max_in_cpu = draw(rng, 2) ? up_to(rng, 10) : 0;
    if (o->offload_param.device == OFFLOAD_NVME && o->offload_optimizer.device == OFFLOAD_NONE)
        o->offload_optimizer.device = OFFLOAD_CPU;
    if (o->offload_param.device == OFFLOAD_NVME || o->offload_optimizer.device == OFFLOAD_NVME)
        o->offload_optimizer.ratio = 1;         /* else refused */
    o->offload_param.pin_memory = draw(rng, 2);
}

static void draw_options(struct plan *p, uint64_t *rng)
{
    struct deepspeed_options *o = &p->ds;

    o->reduce_bucket_size = up_to(rng, 12);
    o->sub_group_size = up_to(rng, 12);
    o->stage3_prefetch_bucket_size = draw(rng, 3) ? up_to(rng, 10) : 0;
    o->stage3_param_persistence_threshold = draw(rng, 2) ? up_to(rng, 8) : 0;
    o->stage3_model_persistence_threshold = up_to(rng, 10);
    o->stage3_max_live_parameters = draw(rng, 2) ? up_to(rng, 12) : 1000000000;
    o->stage3_max_reuse_distance = draw(rng, 2) ? up_to(rng, 12) : 0;
    o->overlap_comm = draw(rng, 2) > 0;
    o->reduce_scatter = draw(rng, 2);
    o->contiguous_gradients = draw(rng, 4) > 0;
    o->stage3_use_all_reduce_for_fetch_params = draw(rng, 2);
    o->stage3_allgather_sequential = draw(rng, 4) == 0;
    o->grad_accum_fp32 = draw(rng, 2);
    if (draw(rng, 3) == 0)
        o->zero_hpz_partition_size = up_to(rng, 4);
    if (draw(rng, 3) == 0)
        o->communication_dtype = draw(rng, 2) ? DT_FP32 : DT_BF16;
    draw_offload(p, rng);
}

static void draw_stage3(struct plan *p, uint64_t *rng)
{
    static const int64_t sizes[] = { 1, 2, 3, 4, 6, 8 };
    static struct schedules tried;

    do {
        memset(p, 0, sizeof *p);
        p->model = model[draw(rng, NCONFIGS)];
        world_of(&p->cluster, sizes[draw(rng, 6)]);
        p->seq = 4;
        p->micro_batch = 1;
        plan_defaults(p, STRAT_ZERO3, DIALECT_DEEPSPEED, draw(rng, 2) ? DT_FP32 : DT_BF16);
        p->kernels = KERNELS_DPX;
        p->accumulation = 1 + draw(rng, 5);
        p->clip = draw(rng, 2) ? 10 : 0;
        p->dropout = draw(rng, 2) ? 0.1 : 0;
        p->recompute = (enum recompute)draw(rng, RECOMPUTE_REENTRANT);       /* those that stage 3 has */
        draw_options(p, rng);
        plan_resolve(p);
        char why[512];
        fail_capture(why, sizeof why);
        /* Lowering finds out what DeepSpeed's buffers on the host do not allow. */
        int rc = plan_check(p, "test") < 0 || lower(p, 0, &tried) < 0 ? -1 : 0;
        fail_capture(NULL, 0);
        if (rc == 0)
            return;
    } while (true);
}

static void print_plan(const struct plan *p)
{
    json_t *j = plan_to_json(p);

    json_object_del(j, "cluster");
    json_object_del(j, "model");
    char *text = json_dumps(j, JSON_COMPACT | JSON_PRESERVE_ORDER);
    print_error("%s in a world of %d: %s\n", p->model.family, (int)p->cluster.world_size, text);
    free(text);
    json_decref(j);
}

static void flows(const struct plan *p)
{
    struct df d;

    df_init(&d, p);
    if (!df_run(&d)) {
        print_plan(p);
        fail_msg("%s", d.why);
    }
    df_free(&d);
}

static void data_flows_through_small_buckets_and_gathers(void **state)
{
    uint64_t rng = 3;
    struct plan p;

    (void)state;
    for (int i = 0; i < 400; i++) {
        draw_stage3(&p, &rng);
        flows(&p);
    }
}

/* Codes that are the numbers themselves: which parts go where. */
static void data_flows_through_gathers_in_int8(void **state)
{
    uint64_t rng = 5;
    char why[512];
    struct model m;
    struct schedules tried = { 0 };
    json_t *j = json_loads("{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_embd\": 32, \"n_head\": 2, \"n_positions\": 8, "
                           "\"vocab_size\": 8}", 0, NULL);

    (void)state;
    assert_int_equal(model_from_config(j, "int8", &m), 0);
    json_decref(j);
    for (int i = 0; i < 60; i++) {
        struct plan p;
        draw_stage3(&p, &rng);
        p.model = m;
        world_of(&p.cluster, 2 + 2 * draw(&rng, 2));
        p.shard_group = p.cluster.world_size;
        p.ds.offload_param.device = p.ds.offload_optimizer.device = OFFLOAD_NONE;
        p.ds.stage3_allgather_sequential = false;
        p.ds.zero_quantized_weights = true;
        plan_resolve(&p);
        fail_capture(why, sizeof why);
        int rc = plan_check(&p, "test") < 0 || lower(&p, 0, &tried) < 0 ? -1 : 0;
        fail_capture(NULL, 0);
        if (rc == 0)
            flows(&p);
        else if (!strstr(why, "partition_size"))
            fail_msg("%s", why);
    }
    schedules_free(&tried);
    model_free(&m);
}

/* Memory for nothing: the model is built under zero.Init. */
static void data_flows_where_the_model_is_never_whole(void **state)
{
    uint64_t rng = 4;
    struct plan p;

    (void)state;
    for (int i = 0; i < 40; i++) {
        draw_stage3(&p, &rng);
        p.cluster.memory = 1;
        flows(&p);
    }
}

/* ---- a description changes nothing but what it says ---- */

static bool same_act(const struct act *a, const struct act *b)
{
    enum { LIFE = ACT_ALLOC | ACT_FREE };
    return a->buf == b->buf && a->at == b->at && a->by == b->by && a->n == b->n &&
           (a->what & LIFE) == (b->what & LIFE);
}

static bool lives(const struct act *a) { return a->what & (ACT_ALLOC | ACT_FREE); }

/* The acts that make or end a buffer, of one entry in two schedules. */
static bool same_lives(const struct schedules *s, const struct op *o, const struct schedules *t,
                       const struct op *q)
{
    uint32_t i = 0, k = 0;

    for (;; i++, k++) {
        while (i < o->nacts && !lives(&s->acts[o->act0 + i]))
            i++;
        while (k < q->nacts && !lives(&t->acts[q->act0 + k]))
            k++;
        if (i == o->nacts || k == q->nacts)
            return i == o->nacts && k == q->nacts;
        if (!same_act(&s->acts[o->act0 + i], &t->acts[q->act0 + k]))
            return false;
    }
}

static void described_or_not_the_schedule_is_the_same(void **state)
{
    static struct schedules plain, told;
    uint64_t rng = 5;
    struct plan p;

    (void)state;
    told.detailed = true;
    for (int i = 0; i < 200; i++) {
        draw_stage3(&p, &rng);
        lowered(&p, p.cluster.world_size - 1, &plain);
        lowered(&p, p.cluster.world_size - 1, &told);
        assert_int_equal(plain.nlayouts, 0);
        assert_int_equal(plain.nslices, 0);
        assert_int_equal(plain.nops, told.nops);
        assert_int_equal(plain.nbufs, told.nbufs);
        for (int k = 0; k < plain.nops; k++) {
            const struct op *o = &plain.ops[k], *q = &told.ops[k];
            if (o->kind != q->kind || o->stream != q->stream || o->what != q->what ||
                !same_lives(&plain, o, &told, q))
                fail_msg("entry %d, %s, is %s where it is described", k, o->what, q->what);
        }
    }
    schedules_free(&plain);
    schedules_free(&told);
}

/* ---- what is read and written is waited for ---- */

static void what_is_read_or_written_is_waited_for(void **state)
{
    static struct schedules s;
    uint64_t rng = 6;
    struct plan p;
    struct hb h;

    (void)state;
    s.detailed = true;
    for (int i = 0; i < 1500; i++) {
        draw_stage3(&p, &rng);
        lowered(&p, 0, &s);
        hb_init(&h, &s);
        h.reads_only = hb_acts_read;
        h.defers = true;                /* record_stream */
        if (!hb_run(&h)) {
            print_plan(&p);
            fail_msg("%s", h.why);
        }
        hb_free(&h);
    }
    schedules_free(&s);
}

/* ---- where modules are computed ---- */

/* Stage 3 fetches each module before its kernels and releases it behind them, where forward is done again too: no entry of a block has
 * kernels of two modules.  Of these models the latter two have blocks of two kinds, whose lists differ in length. */
static void no_entry_computes_two_modules(void **state)
{
    static const char *const models[] = { "gpt2", "llama-3.2-1b", "gemma-3-1b", "llama-4-scout" };
    static struct schedules s;
    struct plan p;

    (void)state;
    for (int v = 0; v < 8; v++) {
        int seen = 0;
        plan_of(&p, models[v / 2], 9, 4, STRAT_ZERO3, DIALECT_DEEPSPEED, DT_BF16);
        p.kernels = KERNELS_TORCH_SDPA;
        p.recompute = v % 2 ? RECOMPUTE_FULL : RECOMPUTE_NONE;
        p.ds.stage3_param_persistence_threshold = 0;
        lowered(&p, 0, &s);
        for (int i = s.begin[SCHED_STEADY]; i < s.end[SCHED_STEADY]; i++) {
            const struct op *o = &s.ops[i];
            int module = -1;
            for (int k = o->u.compute.k0; o->kind == OP_COMPUTE && k < o->u.compute.k1; k++) {
                int of = s.program.piece[o->u.compute.piece].kernels[o->u.compute.pass][k].module;
                assert_true(of < 0 || module < 0 || of == module);
                module = of >= 0 ? of : module;
            }
            seen += module >= 0;
        }
        assert_true(seen > 9 * 6);
        plan_free(&p);
    }
    schedules_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(data_flows_through_small_buckets_and_gathers),
        cmocka_unit_test(data_flows_through_gathers_in_int8),
        cmocka_unit_test(data_flows_where_the_model_is_never_whole),
        cmocka_unit_test(described_or_not_the_schedule_is_the_same),
        cmocka_unit_test(what_is_read_or_written_is_waited_for),
        cmocka_unit_test(no_entry_computes_two_modules),
    };
    return cmocka_run_group_tests_name("model/zero3_data", tests, load_models, free_models);
}
