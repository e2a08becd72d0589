/* Changes of single keys: what was chosen stays, what was a default follows. */
#include "tests/sim/changes.h"

#include <string.h>

#include "base/notes.h"
#include "model/plan/knob.h"

static void a_length_in_k_is_a_power_of_two(void **state)
{
    (void)state;
    struct plan q;
    assert_int_equal(change(FSDP, "seq=1k", &q), 0);
    assert_int_equal(q.seq, 1024);
    plan_free(&q);
    assert_int_equal(change(FSDP, "seq=8x", &q), -1);
    assert_non_null(strstr(said, "seq"));
}

static void more_nodes_shard_over_all_ranks(void **state)
{
    (void)state;
    struct plan q;
    assert_int_equal(change(FSDP, "nodes=4", &q), 0);
    assert_int_equal(q.cluster.world_size, 32);
    assert_int_equal(q.shard_group, 32);            /* the default was all ranks, and is */
    assert_int_equal(q.fsdp.reshard_after_forward, 0);
    assert_int_equal(q.recompute, RECOMPUTE_FULL);
    assert_string_equal(q.cluster.name, "4x8xh100");
    assert_true(q.cluster.inter > 399e9 && q.cluster.inter < 401e9);
    plan_free(&q);
}

static void half_a_node_has_half_of_its_adapters(void **state)
{
    (void)state;
    struct plan q;
    assert_int_equal(change(FSDP, "gpus_per_node=4", &q), 0);
    assert_int_equal(q.cluster.nics, 4);            /* 8 x 400 Gb/s for 8 GPUs: 50 GB/s a GPU */
    assert_true(q.cluster.inter > 199e9 && q.cluster.inter < 201e9);
    plan_free(&q);
}

/* What a plan says of its framework's version is no default, whatever else changes. */
static void the_version_stays(void **state)
{
    (void)state;
    static const char zero2[] = "{\"dpx_plan\":1,\"model\":\"gpt2\",\"cluster\":\"8xh100\",\"seq\":1024,\"micro_batch\":1,"
                                "\"strategy\":\"zero2\",\"dialect\":\"deepspeed\",\"precision\":\"bf16\",\"framework_version\":\"0.19.8\"}";
    struct plan q;
    assert_int_equal(change(zero2, "seq=512", &q), 0);
    assert_string_equal(q.framework_version, "0.19.8");
    plan_free(&q);
    assert_int_equal(change(FSDP, "seq=512", &q), 0);
    assert_string_equal(q.framework_version, "");
    plan_free(&q);
}

/* A board of 700 W may have 500; one of 1000 W as well; one of 400 W may not. */
static void another_gpu_keeps_the_power_limit(void **state)
{
    (void)state;
    static const char *const pairs[][2] = { { "power_limit=500", "gpu=b200" }, { "power_limit=500", "gpu=a100-80gb" } };
    struct plan p, q;
    read_text(FSDP, &p);
    assert_int_equal(plan_source_with(&p, pairs[0], 2, &q), 0);
    assert_true(q.cluster.power_limit_w > 499 && q.cluster.power_limit_w < 501);
    plan_free(&q);
    fail_capture(said, sizeof said);
    assert_int_equal(plan_source_with(&p, pairs[1], 2, &q), -1);
    fail_capture(NULL, 0);
    assert_non_null(strstr(said, "power_limit_w"));
    plan_free(&p);
}

/* Whatever comes first, a cluster's parts are of the cluster named beside them. */
static void parts_of_a_cluster_outlast_another_whole(void **state)
{
    (void)state;
    static const char *const pairs[] = { "network=100", "power_limit=500", "nodes=4", "gpu=b200", "cluster=2x8xh100" };
    struct plan p, q;
    read_text(FSDP, &p);
    assert_int_equal(plan_source_with(&p, pairs, 5, &q), 0);
    assert_string_equal(q.cluster.gpu.name, "b200");
    assert_int_equal(q.cluster.nodes, 4);
    assert_true(q.cluster.power_limit_w > 499 && q.cluster.power_limit_w < 501);
    assert_true(q.cluster.inter > 12.4e9 && q.cluster.inter < 12.6e9);       /* 100 / 8 */
    plan_free(&q);
    plan_free(&p);
}

static void a_network_is_stated_in_gigabits(void **state)
{
    (void)state;
    struct plan q;
    assert_int_equal(change(FSDP, "network=800", &q), 0);
    assert_true(q.cluster.inter > 99.9e9 && q.cluster.inter < 100.1e9);     /* 800 / 8 */
    plan_free(&q);
    assert_int_equal(change(FSDP, "cluster.inter.gb_per_s=100", &q), 0);
    assert_true(q.cluster.inter > 99.9e9 && q.cluster.inter < 100.1e9);
    plan_free(&q);
}

/* Keys of a node by their names in a cluster file, and the one that is asked for most by its own. */
static void a_nodes_keys_are_set_by_name(void **state)
{
    static const char *const pairs[] = { "host_memory=128GB", "node.memory_bytes=128GB", "cluster.node.memory_bytes=128000000000" };
    struct plan q;

    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(change(FSDP, pairs[i], &q), 0);
        assert_int_equal(q.cluster.node.memory, 128000000000);
        plan_free(&q);
    }
    assert_int_equal(change(FSDP, "node.dram_gb_per_s=80", &q), 0);
    assert_close(q.cluster.node.dram, 80e9, 1e-12);
    plan_free(&q);
}

static void another_gpu_comes_with_its_memory(void **state)
{
    (void)state;
    struct plan q;
    assert_int_equal(change(FSDP, "gpu=a100-40gb", &q), 0);
    assert_int_equal(q.cluster.memory, (int64_t)40960 << 20);
    assert_int_equal(q.cluster.nodes, 2);
    plan_free(&q);
    assert_int_equal(change(FSDP, "gpu=h1000", &q), -1);
    assert_non_null(strstr(said, "h100"));
}

static void another_strategy_drops_what_it_has_not(void **state)
{
    (void)state;
    struct plan q;
    assert_int_equal(change(FSDP, "strategy=zero3", &q), 0);        /* torch has none: DeepSpeed's */
    assert_int_equal(q.dialect, DIALECT_DEEPSPEED);
    assert_int_equal(q.recompute, RECOMPUTE_FULL);
    assert_int_equal(q.seq, 1024);
    plan_free(&q);
    assert_int_equal(change(FSDP, "strategy=ddp", &q), 0);
    assert_int_equal(q.dialect, DIALECT_TORCH);
    plan_free(&q);
}

/* What dpx says beside the answer. */
static const char *noted(int (*of)(struct plan *q), struct plan *q, int want)
{
    static char lines[1024];
    json_t *all = json_array(), *before = notes_divert(all), *v;
    size_t i;

    assert_int_equal(of(q), want);
    notes_divert(before);
    lines[0] = '\0';
    json_array_foreach(all, i, v)
        snprintf(lines + strlen(lines), sizeof lines - strlen(lines), "%s\n", json_string_value(v));
    json_decref(all);
    return lines;
}

static int with(const char *from, const char *const *pairs, int n, struct plan *q)
{
    struct plan p;
    int rc;

    read_text(from, &p);
    fail_capture(said, sizeof said);
    rc = plan_source_with(&p, pairs, n, q);
    fail_capture(NULL, 0);
    plan_free(&p);
    return rc;
}

static int to_ddp(struct plan *q)          { return with(FSDP, (const char *[]){ "strategy=ddp" }, 1, q); }
static int to_ddp_and_named(struct plan *q) { return with(FSDP, (const char *[]){ "fsdp.reshard_after_forward=true", "strategy=ddp" }, 2, q); }
static int to_its_own(struct plan *q)      { return with(FSDP, (const char *[]){ "dialect=torch", "strategy=fsdp" }, 2, q); }
static int with_a_version(struct plan *q)  { return with(FSDP, (const char *[]){ "framework_version=0.19.6", "strategy=zero3" }, 2, q); }

/* What a user names is set or refused, whatever the order; what the plan had and the new strategy has not is said. */
static void what_another_strategy_drops_is_said_and_what_is_named_is_not_dropped(void **state)
{
    struct plan q;

    (void)state;
    assert_string_equal(noted(to_ddp, &q, 0), "dpx: left out of the plan, because PyTorch DDP has no such key: fsdp.reshard_after_forward\n");
    plan_free(&q);
    assert_string_equal(noted(to_ddp_and_named, &q, -1), "");
    assert_string_equal(said, "fsdp.reshard_after_forward=true: ddp of torch has no such key");
    assert_string_equal(noted(to_its_own, &q, 0), "");
    assert_int_equal(q.fsdp.reshard_after_forward, 0);
    plan_free(&q);
    assert_string_equal(noted(with_a_version, &q, 0), "dpx: dialect torch has no zero3: taken as dialect deepspeed has it\n"
                                                      "dpx: left out of the plan, because DeepSpeed ZeRO-3 has no such key: fsdp.reshard_after_forward\n");
    assert_string_equal(q.framework_version, "0.19.6");
    plan_free(&q);
}

/* However many they are, every key that falls away is named whole. */
#define MANY "{\"dpx_plan\":1,\"model\":\"gpt2\",\"cluster\":\"8xh100\",\"seq\":1024,\"micro_batch\":1,\"strategy\":\"zero3\",\"precision\":\"bf16\",\"deepspeed\":{" \
             "\"reduce_bucket_size\":1000000,\"stage3_prefetch_bucket_size\":1000,\"stage3_param_persistence_threshold\":1000," \
             "\"stage3_model_persistence_threshold\":100000,\"stage3_max_live_parameters\":5000000,\"stage3_max_reuse_distance\":5000," \
             "\"sub_group_size\":4000000,\"overlap_comm\":false}}"

static int many_to_fsdp(struct plan *q) { return with(MANY, (const char *[]){ "strategy=fsdp", "dialect=torch" }, 2, q); }

static void all_that_is_dropped_is_named(void **state)
{
    static const char *const keys[] = { "reduce_bucket_size", "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold",
        "stage3_model_persistence_threshold", "stage3_max_live_parameters", "stage3_max_reuse_distance", "sub_group_size", "overlap_comm" };
    char key[96];
    struct plan q;

    (void)state;
    const char *text = noted(many_to_fsdp, &q, 0);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        snprintf(key, sizeof key, "deepspeed.%s", keys[i]);
        const char *at = strstr(text, key);
        assert_true(at && (at[strlen(key)] == ',' || at[strlen(key)] == '\n'));
    }
    plan_free(&q);
}

#define CUT "{\"dpx_plan\":1,\"model\":\"llama-3.1-8b\",\"cluster\":\"8xh100\",\"seq\":1024,\"micro_batch\":1,\"strategy\":\"zero1\"," \
            "\"dialect\":\"megatron\",\"precision\":\"bf16\",\"parallel\":{\"tensor\":4,\"sequence\":true},\"megatron\":{\"tp_comm_overlap\":true}}"

#define ON_8B "{\"dpx_plan\":1,\"model\":\"llama-3.1-8b\",\"cluster\":\"2x8xh100\",\"seq\":1024,\"micro_batch\":1,\"precision\":\"bf16\","
#define CODES ON_8B "\"strategy\":\"zero3\",\"deepspeed\":{\"zero_quantized_weights\":true,\"zero_quantized_gradients\":true,\"zero_hpz_partition_size\":8}}"
#define AWAY ON_8B "\"strategy\":\"zero3\",\"deepspeed\":{\"offload_optimizer\":{\"device\":\"cpu\",\"pin_memory\":false}}}"
#define FLOAT8 ON_8B "\"strategy\":\"fsdp\",\"fp8\":\"tensorwise\",\"fp8_filter\":[\"lm_head\",\"q_proj\"],\"fsdp\":{" \
    "\"enable_fsdp_float8_all_gather\":true,\"precompute_float8_dynamic_scale_for_fsdp\":true}}"

/* Keys of objects in objects go as well; a plan with its states on the host is not silently one without. */
static void another_strategy_drops_keys_of_inner_objects(void **state)
{
    const char *both[] = { "strategy=fsdp", "deepspeed.offload_optimizer.device=none" };
    struct plan q;

    (void)state;
    assert_int_equal(change(AWAY, "strategy=fsdp", &q), -1);
    assert_string_equal(said, "deepspeed.offload_optimizer.device: fsdp of torch has no such key: set deepspeed.offload_optimizer.device=none as well");
    assert_int_equal(with(AWAY, both, 2, &q), 0);
    assert_int_equal(q.strategy, STRAT_FSDP);
    plan_free(&q);
    assert_int_equal(change(AWAY, "strategy=zero2", &q), 0);        /* which has both keys */
    assert_int_equal(q.ds.offload_optimizer.device, OFFLOAD_CPU);
    assert_false(q.ds.offload_optimizer.pin_memory);
    plan_free(&q);
    assert_int_equal(change(CODES, "strategy=fsdp", &q), 0);
    plan_free(&q);
}

/* Codes, float8 and clipping are switched off by any word for nothing, and take what depends on them along. */
static void what_is_on_is_switched_off(void **state)
{
    static const char *const off[] = { "false", "none", "0", "off", "no" };
    char pair[96];
    struct plan q;

    (void)state;
    for (size_t i = 0; i < sizeof off / sizeof *off; i++) {
        snprintf(pair, sizeof pair, "deepspeed.zero_quantized_weights=%s", off[i]);
        assert_int_equal(change(CODES, pair, &q), 0);
        assert_false(q.ds.zero_quantized_weights);
        assert_true(q.ds.zero_quantized_gradients);
        plan_free(&q);
        snprintf(pair, sizeof pair, "fp8=%s", off[i]);
        if (change(FLOAT8, pair, &q) < 0)
            fail_msg("%s: %s", pair, said);
        assert_int_equal(q.float8.recipe, FLOAT8_NONE);
        assert_false(q.fsdp.float8_all_gather || q.fsdp.float8_precomputed || q.float8.filter[0]);
        plan_free(&q);
        snprintf(pair, sizeof pair, "fsdp.enable_fsdp_float8_all_gather=%s", off[i]);
        assert_int_equal(change(FLOAT8, pair, &q), 0);
        assert_true(q.float8.recipe == FLOAT8_TENSORWISE && !q.fsdp.float8_precomputed);
        plan_free(&q);
        snprintf(pair, sizeof pair, "clip=%s", off[i]);
        assert_int_equal(change(CODES, pair, &q), 0);
        assert_close(q.clip, 0, 0);
        plan_free(&q);
    }
    assert_int_equal(change(CODES, "recompute=off", &q), 0);
    assert_int_equal(q.recompute, RECOMPUTE_NONE);
    plan_free(&q);
    assert_int_equal(change(CODES, "deepspeed.zero_quantized_weights=maybe", &q), -1);
    assert_non_null(strstr(said, "zero_quantized_weights"));
}

/* What says nothing on one rank goes with the degree that is named. */
static void a_degree_of_one_takes_its_keys_along(void **state)
{
    (void)state;
    struct plan q;
    assert_int_equal(change(CUT, "parallel.tensor=1", &q), 0);
    assert_false(q.parallel.sequence || q.megatron.tp_comm_overlap);
    plan_free(&q);
    assert_int_equal(change(CUT, "parallel.tensor=2", &q), 0);
    assert_true(q.parallel.sequence && q.megatron.tp_comm_overlap);
    plan_free(&q);
}

#define MIXTURE "{\"dpx_plan\":1,\"model\":\"qwen3-30b-a3b\",\"cluster\":\"8x8xh100\",\"seq\":4096,\"micro_batch\":1,\"strategy\":\"zero1\",\"kernels\":\"te\"," \
                "\"dialect\":\"megatron\",\"precision\":\"bf16\",\"parallel\":{\"tensor\":2,\"sequence\":true,\"expert\":8%s}}"

/* Experts are cut by the tensor-parallel ranks unless a plan says otherwise (initialize_model_parallel(): expert_tensor_parallel_size), and stay so
 * whatever else is changed. */
static void a_change_elsewhere_leaves_experts_as_they_are(void **state)
{
    static const struct { const char *said; int64_t is; } of[] = { { "", 2 }, { ",\"expert_tensor\":2", 2 }, { ",\"expert_tensor\":1", 1 } };
    char text[512];

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct plan p, q;
        snprintf(text, sizeof text, MIXTURE, of[i].said);
        read_text(text, &p);
        assert_int_equal(p.parallel.expert_tensor, of[i].is);
        assert_int_equal(change(text, "clip=1", &q), 0);
        p.clip = 1;
        json_t *a = plan_to_json(&p), *b = plan_to_json(&q);
        assert_true(json_equal(a, b));
        json_decref(a);
        json_decref(b);
        plan_free(&p);
        plan_free(&q);
    }
}

static void a_global_batch_sets_the_accumulation(void **state)
{
    (void)state;
    struct plan q;
    assert_int_equal(change(FSDP, "global_batch=128", &q), 0);
    assert_int_equal(q.accumulation, 4);            /* 128 / (2 x 16) */
    plan_free(&q);
    assert_int_equal(change(FSDP, "global_batch=100", &q), -1);
}

/* Two values for a key, under one name or two, and a batch that is not the accumulation's: neither is what was meant for certain. */
static void changes_that_contradict_each_other_are_refused(void **state)
{
    static const struct { const char *of[3]; const char *says; } rows[] = {
        { { "micro_batch=2", "micro_batch=4" }, "micro_batch is set twice, to 2 and to 4" },
        { { "network=100", "cluster.inter.gbit_per_s=200" }, "cluster.inter.gbit_per_s is set twice" },
        { { "seq=512", "micro_batch=2", "seq=1k" }, "seq is set twice, to 512 and to 1k" },
        { { "global_batch=128", "accumulation=2" }, "128 samples are 4 accumulation steps" },
        { { "seq=512", "seq=512" }, NULL },
        { { "global_batch=128", "accumulation=4" }, NULL },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int n = rows[i].of[2] ? 3 : 2;
        struct plan q;
        int rc = given(FSDP, rows[i].of, n, &q);
        if (!rows[i].says != !rc || (rc && !strstr(said, rows[i].says)))
            fail_msg("%s %s: %d, \"%s\"", rows[i].of[0], rows[i].of[1], rc, said);
        if (rc == 0)
            plan_free(&q);
    }
}

#define PIPELINE "{\"dpx_plan\":1,\"model\":\"llama-3.1-8b\",\"cluster\":\"8xh100\",\"seq\":1024,\"micro_batch\":1,\"accumulation\":8," \
                 "\"strategy\":\"fsdp\",\"dialect\":\"torch\",\"precision\":\"bf16\",\"parallel\":{\"pipeline\":4}}"

/* The shards were all ranks of a stage, and are; without a pipeline every micro-step is reduced, as usual.  A batch is
 * dealt over the stages' ranks. */
static void a_degree_of_the_pipeline_moves_what_follows_it(void **state)
{
    static const struct { const char *pair; int64_t shards; bool sync; } rows[] = {
        { "parallel.pipeline=2", 4, false }, { "parallel.pipeline=8", 1, false }, { "parallel.pipeline=1", 8, true },
    };
    struct plan q;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(change(PIPELINE, rows[i].pair, &q), 0);
        assert_int_equal(q.shard_group, rows[i].shards);
        assert_int_equal(q.sync_every_micro_step, rows[i].sync);
        plan_free(&q);
    }
    assert_int_equal(change(PIPELINE, "global_batch=64", &q), 0);
    assert_int_equal(q.accumulation, 32);           /* 64 / (1 x 2 ranks of a stage) */
    plan_free(&q);
}

static void a_key_that_is_none_is_refused_with_its_neighbour(void **state)
{
    (void)state;
    struct plan q;
    assert_int_equal(change(FSDP, "micro_bach=2", &q), -1);
    assert_non_null(strstr(said, "micro_batch"));
}

/* Names that trainers have for what a key says. */
static void other_tools_names_are_told_as_keys(void **state)
{
    static const struct { const char *pair, *key; } rows[] = {
        { "tp=2", "parallel.tensor?" }, { "batch_size=4", "micro_batch?" }, { "gradient_accumulation_steps=4", "accumulation?" },
        { "zero_stage=3", "strategy?" }, { "gradient_checkpointing=true", "recompute?" }, { "attn_implementation=sdpa", "kernels?" },
        { "max_length=4k", "mean seq?" }, { "lora_r=8", "lora.rank?" }, { "dtype=bf16", "precision?" },
    };
    struct plan q;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(change(FSDP, rows[i].pair, &q), -1);
        if (!strstr(said, rows[i].key))
            fail_msg("%s: %s", rows[i].pair, said);
    }
}

/* A command line has any bytes; a document has text. */
static void a_value_that_is_no_text_is_refused_with_its_key(void **state)
{
    struct plan q;

    (void)state;
    assert_int_equal(change(FSDP, "precision=\xcf\xcf", &q), -1);
    assert_non_null(strstr(said, "precision: "));
    assert_non_null(strstr(said, "not UTF-8"));
}

static void no_limit_is_null_and_not_an_integer_beyond_doubles(void **state)
{
    (void)state;
    struct plan q, r;
    assert_int_equal(change(FSDP, "strategy=zero3", &q), 0);
    assert_int_equal(q.ds.stage3_model_persistence_threshold, INT64_MAX);
    json_t *doc = plan_to_json(&q);
    json_t *v = json_object_get(json_object_get(doc, "deepspeed"), "stage3_model_persistence_threshold");
    assert_true(json_is_null(v));
    assert_int_equal(plan_from_json(doc, "again", &r), 0);
    assert_int_equal(r.ds.stage3_model_persistence_threshold, INT64_MAX);
    json_decref(doc);
    plan_free(&q);
    plan_free(&r);
}

/* ---- what a file says stays ---- */

enum said { NOT, ITSELF, AMONG_ALL };       /* whether the file says a key */

/* A plan of that version whose file says one key, as it is by default there, with another version set; the key's value then. */
static double under_another_version(const struct plan *of, const struct knob *k, const char *version, enum said how)
{
    json_t *all = plan_to_json(of), *doc = how == AMONG_ALL ? json_incref(all) : plan_source_brief(of), *object, *v;
    char pair[64], key[96];
    const char *pairs[] = { pair };
    struct plan p, q;

    snprintf(pair, sizeof pair, "framework_version=%s", version);
    knob_key_text(k, key, sizeof key);
    object = k->object[0] ? json_object_get(all, k->object) : all;
    v = json_object_get(object, k->name);
    if (!v)
        fail_msg("%s is not in a whole document", key);
    if (how == ITSELF)
        json_object_set(knob_object_at(doc, k->object), k->name, v);
    assert_int_equal(plan_from_json(doc, "test", &p), 0);
    if (plan_source_with(&p, pairs, 1, &q) < 0)
        fail_msg("%s with %s is refused", key, pair);
    double value = knob_get(&q, k);
    plan_free(&p);
    plan_free(&q);
    json_decref(doc);
    json_decref(all);
    return value;
}

static bool same(double a, double b) { return !(a < b) && !(a > b); }

/* A plan of the cell that no file says anything of. */
static void plain(enum strategy s, enum dialect d, const char *version, struct plan *p)
{
    memset(p, 0, sizeof *p);
    assert_int_equal(model_load("gpt2", &p->model), 0);
    assert_int_equal(cluster_load("8xh100", &p->cluster), 0);
    p->seq = 64;
    p->micro_batch = 1;
    snprintf(p->framework_version, sizeof p->framework_version, "%s", version);
    plan_defaults(p, s, d, DT_BF16);
}

/* All keys whose default another version of the framework changes, in all cells: what is not said follows, what is said stays. */
static void another_version_changes_only_what_the_file_does_not_say(void **state)
{
    int differ = 0;

    (void)state;
    for (int cell = 0; cell < NSTRATEGY * NDIALECT; cell++) {
        enum strategy s = (enum strategy)(cell / NDIALECT);
        enum dialect d = (enum dialect)(cell % NDIALECT);
        const char *a, *b;
        for (int i = 0; dialect_has(d, s) && (a = plan_version_at(d, i, NULL)); i++)
            for (int j = 0; (b = plan_version_at(d, j, NULL)); j++) {
                struct plan p, q;
                const struct knob *k;
                plain(s, d, a, &p);
                plain(s, d, b, &q);
                for (int r = 0; (k = knob_at(r)); r++) {
                    double was = knob_get(&p, k), is = knob_get(&q, k);
                    if (!(k->cells & knob_cell(&p)) || same(was, is) || !strcmp(k->name, "framework_version"))
                        continue;
                    differ++;
                    if (!same(under_another_version(&p, k, b, NOT), is))
                        fail_msg("%s of %s/%s %s does not follow to %s", k->name, strategy_name(s), dialect_name(d), a, b);
                    if (!same(under_another_version(&p, k, b, ITSELF), was))
                        fail_msg("%s of %s/%s %s does not stay under %s", k->name, strategy_name(s), dialect_name(d), a, b);
                    if (!same(under_another_version(&p, k, b, AMONG_ALL), was))
                        fail_msg("%s of %s/%s %s in a whole file does not stay under %s", k->name, strategy_name(s), dialect_name(d), a, b);
                }
                plan_free(&p);
                plan_free(&q);
            }
    }
    assert_true(differ > 10);           /* reduce_dtype of FSDP2; clip and check_grad_overflow of DeepSpeed */
}

#define BEFORE_2_15 "{\"dpx_plan\":1,\"model\":\"gpt2\",\"cluster\":\"8xh100\",\"seq\":64,\"micro_batch\":1,\"strategy\":\"fsdp\"," \
                    "\"dialect\":\"torch\",\"precision\":\"bf16\",\"framework_version\":\"2.9\"%s}"

/* FSDP2 reduces in the precision up to 2.14, unless a plan says in what. */
static void another_precision_changes_only_what_the_file_does_not_say(void **state)
{
    static const struct { const char *more; enum dtype reduces; } files[] = { { "", DT_FP16 }, { ",\"reduce_dtype\":\"bf16\"", DT_BF16 } };

    (void)state;
    for (int i = 0; i < 2; i++) {
        char text[512];
        struct plan q;
        snprintf(text, sizeof text, BEFORE_2_15, files[i].more);
        assert_int_equal(change(text, "precision=fp16", &q), 0);
        assert_int_equal(q.reduce_dtype, files[i].reduces);
        plan_free(&q);
    }
}

#define ADAPTS "{\"dpx_plan\":1,\"model\":\"gpt2\",\"cluster\":\"8xh100\",\"seq\":64,\"micro_batch\":1,\"precision\":\"bf16\",\"train\":\"lora\",%s}"

/* A change of a file that says no defaults is the file with that key in it: what follows from the key follows it. */
static void a_change_is_the_file_with_that_key(void **state)
{
    static const char *const cells[] = { "\"strategy\":\"ddp\",\"dialect\":\"torch\"", "\"strategy\":\"fsdp\",\"dialect\":\"torch\"",
                                         "\"strategy\":\"fsdp\",\"dialect\":\"torch-fsdp1\"", "\"strategy\":\"zero2\",\"dialect\":\"deepspeed\"" };
    static const struct { const char *key, *word; } changes[] = {
        { "precision", "fp32" }, { "precision", "fp16" }, { "kernels", "dpx" }, { "kernels", "torch-eager" }, { "train", "all" },
        { "base_dtype", "nf4" }, { "recompute", "full" }, { "optimizer_form", "loop" }, { "loss", "fused-linear" }, { "unit", "block" },
    };
    int equal = 0;

    (void)state;
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++)
        for (size_t k = 0; k < sizeof changes / sizeof *changes; k++) {
            char text[512], pair[64];
            struct plan changed, written;
            snprintf(text, sizeof text, ADAPTS, cells[i]);
            snprintf(pair, sizeof pair, "%s=%s", changes[k].key, changes[k].word);
            json_t *j = json_loads(text, 0, NULL);
            json_object_set_new(j, changes[k].key, json_string(changes[k].word));
            fail_capture(said, sizeof said);
            bool good = plan_from_json(j, "test", &written) == 0;
            fail_capture(NULL, 0);
            json_decref(j);
            assert_int_equal(change(text, pair, &changed) == 0, good);
            if (!good)
                continue;
            json_t *a = plan_to_json(&changed), *b = plan_to_json(&written);
            if (!json_equal(a, b))
                fail_msg("%s with %s is another plan than the file with it:\n%s\n%s", cells[i], pair, json_dumps(a, 0), json_dumps(b, 0));
            equal++;
            json_decref(a);
            json_decref(b);
            plan_free(&changed);
            plan_free(&written);
        }
    assert_true(equal >= 20);
}

/* A norm is the training's, whatever shares it out: DeepSpeed's default, said in the file, is not FSDP's. */
static void a_norm_outlasts_the_framework(void **state)
{
    static const struct { const char *more; double clip; } files[] = { { "", 0 }, { ",\"clip\":1.0", 1 } };

    (void)state;
    for (int i = 0; i < 2; i++) {
        char text[512];
        struct plan q;
        snprintf(text, sizeof text, "{\"dpx_plan\":1,\"model\":\"gpt2\",\"cluster\":\"8xh100\",\"seq\":64,\"micro_batch\":1,"
                 "\"strategy\":\"zero3\",\"dialect\":\"deepspeed\",\"precision\":\"bf16\"%s}", files[i].more);
        assert_int_equal(change(text, "strategy=fsdp", &q), 0);
        assert_close(q.clip + 1, files[i].clip + 1, 1e-12);
        plan_free(&q);
    }
}

/* A plan that is refused, by what kind of check ever, is accepted once the change takes the reason away, and not by another change. */
static void a_refused_plan_is_mended(void **state)
{
    static const struct { const char *member, *mends, *says; } plans[] = {
        { "\"parallel\":{\"tensor\":3}", "parallel.tensor=1", "tensor 3" },              /* of 16 ranks */
        { "\"micro_batch\":0", "micro_batch=2", "micro_batch" },
        { "\"recompute\":\"some\"", "recompute=none", "recompute" },
        { "\"deepspeed\":{\"overlap_comm\":true}", "strategy=zero2", "deepspeed" },
        { "\"framework_version\":\"1.0\"", "framework_version=2.9", "framework_version" },
        { "\"optimizer\":\"paged_adamw_8bit\"", "strategy=ddp", "optimizer" },
        { "\"shard_group\":5", "nodes=5", "shard_group" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        const char *both[] = { plans[i].mends, "seq=512" };
        char text[600];
        struct plan q;
        snprintf(text, sizeof text, "{\"dpx_plan\":1,\"model\":\"gpt2\",\"cluster\":\"2x8xh100\",\"seq\":1024,\"strategy\":\"fsdp\","
                 "\"dialect\":\"torch\",\"precision\":\"bf16\",%s}", plans[i].member);
        if (given(text, both, 0, &q) == 0 || !strstr(said, plans[i].says))
            fail_msg("%s is accepted as it is, or refused with \"%s\"", plans[i].member, said);
        if (given(text, both + 1, 1, &q) == 0 || !strstr(said, plans[i].says))
            fail_msg("%s is accepted with seq=512, or refused with \"%s\"", plans[i].member, said);
        if (given(text, both, 2, &q) < 0)
            fail_msg("%s is not mended by %s: %s", plans[i].member, plans[i].mends, said);
        assert_int_equal(q.seq, 512);
        plan_free(&q);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_length_in_k_is_a_power_of_two),
        cmocka_unit_test(more_nodes_shard_over_all_ranks),
        cmocka_unit_test(a_degree_of_the_pipeline_moves_what_follows_it),
        cmocka_unit_test(half_a_node_has_half_of_its_adapters),
        cmocka_unit_test(the_version_stays),
        cmocka_unit_test(another_gpu_keeps_the_power_limit),
        cmocka_unit_test(parts_of_a_cluster_outlast_another_whole),
        cmocka_unit_test(a_network_is_stated_in_gigabits),
        cmocka_unit_test(a_nodes_keys_are_set_by_name),
        cmocka_unit_test(another_gpu_comes_with_its_memory),
        cmocka_unit_test(another_strategy_drops_what_it_has_not),
        cmocka_unit_test(what_another_strategy_drops_is_said_and_what_is_named_is_not_dropped),
        cmocka_unit_test(all_that_is_dropped_is_named),
        cmocka_unit_test(another_strategy_drops_keys_of_inner_objects),
        cmocka_unit_test(what_is_on_is_switched_off),
        cmocka_unit_test(a_degree_of_one_takes_its_keys_along),
        cmocka_unit_test(a_change_elsewhere_leaves_experts_as_they_are),
        cmocka_unit_test(a_global_batch_sets_the_accumulation),
        cmocka_unit_test(changes_that_contradict_each_other_are_refused),
        cmocka_unit_test(a_key_that_is_none_is_refused_with_its_neighbour),
        cmocka_unit_test(other_tools_names_are_told_as_keys),
        cmocka_unit_test(a_value_that_is_no_text_is_refused_with_its_key),
        cmocka_unit_test(no_limit_is_null_and_not_an_integer_beyond_doubles),
        cmocka_unit_test(another_version_changes_only_what_the_file_does_not_say),
        cmocka_unit_test(another_precision_changes_only_what_the_file_does_not_say),
        cmocka_unit_test(a_change_is_the_file_with_that_key),
        cmocka_unit_test(a_norm_outlasts_the_framework),
        cmocka_unit_test(a_refused_plan_is_mended),
    };
    return cmocka_run_group_tests_name("sim/plan_source", tests, NULL, NULL);
}
