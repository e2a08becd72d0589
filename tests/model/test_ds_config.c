/* test_ds_config.c -- DeepSpeed configs in and out, and keys that its versions removed. */
#include "tests/check.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "model/exchange/ds_config.h"
#include "tests/model/random_plan.h"

static char said[1024];
static struct model gpt2;
static struct cluster eight;

static json_t *parse(const char *text)
{
    char *json = strdup(text);
    json_error_t e;
    json_t *j;

    for (char *c = json; *c; c++)
        if (*c == '\'')
            *c = '"';
    j = json_loads(json, 0, &e);
    if (!j)
        fail_msg("test input: %s: %s", e.text, json);
    free(json);
    return j;
}

/* The plan borrows model and cluster. */
static int import(const char *text, struct plan *p, struct notes *notes)
{
    json_t *j = parse(text);
    int rc;

    memset(p, 0, sizeof *p);
    p->model = gpt2;
    p->cluster = eight;
    p->seq = 1024;
    fail_capture(said, sizeof said);
    rc = ds_config_read(j, "ds.json", p, notes);
    fail_capture(NULL, 0);
    json_decref(j);
    return rc;
}

static void accepts(const char *text, struct plan *p)
{
    struct notes n = { 0 };

    if (import(text, p, &n) < 0)
        fail_msg("%s: refused: %s", text, said);
}

static void refuses(const char *text, const char *word)
{
    struct plan p;

    if (import(text, &p, NULL) == 0)
        fail_msg("%s: accepted", text);
    if (strncmp(said, "ds.json: ", 9) || !strstr(said, word))
        fail_msg("%s: says \"%s\", which lacks \"%s\"", text, said, word);
}

static bool noted(const struct notes *n, const char *word)
{
    for (int i = 0; i < n->n; i++)
        if (strstr(n->text[i], word))
            return true;
    return false;
}

static void a_usual_config_becomes_its_plan(void **state)
{
    (void)state;
    struct plan p;

    accepts("{'train_batch_size':64,'train_micro_batch_size_per_gpu':4,"
            "'bf16':{'enabled':true},'gradient_clipping':0.5,'steps_per_print':10,"
            "'optimizer':{'type':'AdamW','params':{'lr':1e-4}},'scheduler':{'type':'WarmupLR'},"
            "'wall_clock_breakdown':false,"
            "'zero_optimization':{'stage':2,'overlap_comm':true,'reduce_bucket_size':2e8,"
            "'allgather_bucket_size':200000000,'contiguous_gradients':true,"
            "'offload_optimizer':{'device':'none'}}}", &p);
    assert_int_equal(p.strategy, STRAT_ZERO2);
    assert_int_equal(p.accumulation, 2);            /* 64 = 4 * 2 * 8 ranks */
    assert_int_equal(p.ds.reduce_bucket_size, 200000000);
    assert_int_equal(p.ds.overlap_comm, 1);
    assert_int_equal(p.precision, DT_BF16);
    assert_true(p.clip > 0.49 && p.clip < 0.51);
}

/* A logger that waits for each collective makes another step; one that is off says nothing. */
static void what_waits_is_told(void **state)
{
    struct notes notes = { 0 };
    struct plan p;

    (void)state;
    assert_int_equal(import("{'train_batch_size':8,'comms_logger':{'enabled':true}}", &p, &notes), 0);
    assert_true(noted(&notes, "comms_logger is not in the plan: the host and the GPU wait for each collective"));
    notes = (struct notes){ 0 };
    assert_int_equal(import("{'train_batch_size':8,'comms_logger':{'enabled':false},'eigenvalue':{'enabled':false}}", &p, &notes), 0);
    assert_false(noted(&notes, "comms_logger"));
    refuses("{'train_batch_size':8,'eigenvalue':{'enabled':true}}", "eigenvalue");
}

static void stages_and_their_defaults(void **state)
{
    (void)state;
    struct plan p;

    accepts("{'train_batch_size':8}", &p);
    assert_int_equal(p.strategy, STRAT_DDP);
    assert_int_equal(p.precision, DT_FP32);
    accepts("{'train_batch_size':8,'zero_optimization':true}", &p);
    assert_int_equal(p.strategy, STRAT_ZERO1);
    accepts("{'train_batch_size':8,'zero_optimization':{'stage':1}}", &p);
    assert_int_equal(p.ds.overlap_comm, 0);
    accepts("{'train_batch_size':8,'zero_optimization':{'stage':3,'overlap_comm':null}}", &p);
    assert_int_equal(p.ds.overlap_comm, 1);
    /* keys that another stage reads change nothing, as in DeepSpeed */
    accepts("{'train_batch_size':8,'zero_optimization':{'stage':1,'stage3_max_live_parameters':7}}",
            &p);
    accepts("{'train_batch_size':8,'zero_optimization':{'stage':1},'bf16':{'enabled':true},"
            "'data_types':{'grad_accum_dtype':'fp32'}}", &p);
    assert_true(p.ds.grad_accum_fp32);              /* BF16_Optimizer */
    refuses("{'train_batch_size':8,'zero_optimization':{'stage':1},'bf16':{'enabled':true,"
            "'immediate_grad_update':true},'data_types':{'grad_accum_dtype':'fp32'}}", "bf16.immediate_grad_update");
    accepts("{'train_batch_size':8,'zero_optimization':{'stage':1},'bf16':{'enabled':true,"
            "'immediate_grad_update':true}}", &p);  /* DeepSpeed does not read it */
    refuses("{'train_batch_size':8,'zero_optimization':{'stage':4}}", "zero_optimization.stage");
    refuses("{'train_batch_size':8,'zero_optimization':{'stage':3},'bf16':{'enabled':true},'expert_parallel':{'enabled':true,'autoep_size':8}}",
            "has no experts");
    refuses("{'train_batch_size':8,'zero_optimization':{'stage':2},'bf16':{'enabled':true},"
            "'expert_parallel':{'enabled':true,'autoep_size':8,'preset_model':'mixtral'}}", "where the model is gpt2");
    refuses("{'train_batch_size':8,'bf16':{'enabled':true},'data_types':{'grad_accum_dtype':'fp32'}}",
            "grad_accum_dtype");
}

/* transformers and accelerate: hidden^2, int(0.9*hidden^2), 10*hidden; GPT-2 has
 * 768: 589,824, 530,841 (0.9 * 589,824 = 530,841.6) and 7,680. */
static void auto_values_come_from_the_hidden_size(void **state)
{
    (void)state;
    struct plan p;
    struct notes n = { 0 };

    assert_int_equal(import("{'train_batch_size':'auto','train_micro_batch_size_per_gpu':'auto',"
                            "'gradient_accumulation_steps':'auto','gradient_clipping':'auto',"
                            "'fp16':{'enabled':'auto'},'bf16':{'enabled':'auto'},"
                            "'optimizer':{'type':'AdamW','params':{'lr':'auto'}},"
                            "'zero_optimization':{'stage':3,'reduce_bucket_size':'auto',"
                            "'stage3_prefetch_bucket_size':'auto',"
                            "'stage3_param_persistence_threshold':'auto'}}", &p, &n), 0);
    assert_int_equal(p.ds.reduce_bucket_size, 589824);
    assert_int_equal(p.ds.stage3_prefetch_bucket_size, 530841);
    assert_int_equal(p.ds.stage3_param_persistence_threshold, 7680);
    assert_int_equal(p.micro_batch, 1);
    assert_int_equal(p.accumulation, 1);
    assert_true(noted(&n, "--micro-batch"));
    assert_true(noted(&n, "bf16.enabled"));
    n.n = 0;                    /* of other keys nothing is filled in, and DeepSpeed drops "auto" */
    assert_int_equal(import("{'train_batch_size':8,'zero_optimization':{'stage':3,'sub_group_size':'auto','max_live_parameters':'auto',"
                            "'prefetch_bucket_size':'auto'}}", &p, &n), 0);
    assert_int_equal(p.ds.sub_group_size, 1000000000);
    assert_int_equal(p.ds.stage3_max_live_parameters, 1000000000);
    assert_int_equal(p.ds.stage3_prefetch_bucket_size, 50000000);
    assert_true(noted(&n, "sub_group_size is \"auto\"") && noted(&n, "prefetch_bucket_size is \"auto\""));
}

/* A configuration with one key of a section set; its plan, or what it is refused with (without the key's name). */
static json_t *plan_with(const char *section, const char *key, const json_t *value, int *nnotes)
{
    static const char *const stages[] = { "zero_optimization", "tensor_parallel" };
    struct notes notes = { 0 };
    struct plan p = { .model = gpt2, .cluster = eight, .seq = 1024 };
    json_t *of[2] = { json_pack("{s:i}", "stage", 3), json_object() }, *doc, *out;

    for (int i = 0; i < 2 && key; i++)
        if (!strcmp(section, stages[i]))
            json_object_set(of[i], key, (json_t *)(uintptr_t)value);
    doc = json_pack("{s:i, s:o, s:o}", "train_batch_size", 8, stages[0], of[0], stages[1], of[1]);
    fail_capture(said, sizeof said);
    bool taken = ds_config_read(doc, "ds.json", &p, &notes) == 0;
    fail_capture(NULL, 0);
    out = taken ? plan_to_json(&p) : json_string(strrchr(said, ':'));
    *nnotes = notes.n;
    json_decref(doc);
    return out;
}

/* tests/golden/deepspeed/names.json: all fields of DeepSpeed's models that have an alias, as its installed source lists them. */
static void a_field_with_two_names_is_read_by_both(void **state)
{
    (void)state;
    json_t *doc = json_load_file("tests/golden/deepspeed/names.json", 0, NULL), *rows = json_object_get(doc, "rows"), *row;
    size_t i;
    int changed = 0, n, m;
    json_t *plain = plan_with("", NULL, NULL, &n);

    assert_int_equal(json_array_size(rows), 11);
    json_array_foreach(rows, i, row) {
        const char *section = json_string_value(json_object_get(row, "section")), *field = json_string_value(json_object_get(row, "field"));
        const char *alias = json_string_value(json_object_get(row, "alias"));
        const json_t *usual = json_object_get(row, "default");
        json_t *value = json_is_integer(usual) ? json_integer(json_integer_value(usual) > 0 ? json_integer_value(usual) / 2 : 7)
                      : json_is_null(usual) ? json_object() : json_boolean(!json_is_true(usual));
        json_t *a = plan_with(section, alias, value, &n), *b = plan_with(section, field, value, &m);
        if (!json_equal(a, b) || n != m || n != 0)
            fail_msg("%s.%s and %s are not alike, or noted (%d and %d notes): %s", section, field, alias, n, m, said);
        changed += json_is_object(a) && !json_equal(a, plain);
        char both[256];
        snprintf(both, sizeof both, "{'train_batch_size':8,'%s':{'%s':1,'%s':1}}", section, field, alias);
        refuses(both, "DeepSpeed refuses it beside");
        json_decref(value);
        json_decref(a);
        json_decref(b);
    }
    assert_int_equal(changed, 7);           /* not: saving, the granularity (refused), AutoTP's two (of inference) */
    json_decref(plain);
    json_decref(doc);
}

static void the_command_line_fills_in_auto(void **state)
{
    (void)state;
    json_t *j = parse("{'train_batch_size':'auto','train_micro_batch_size_per_gpu':'auto',"
                      "'gradient_accumulation_steps':'auto','bf16':{'enabled':'auto'},"
                      "'zero_optimization':{'stage':2}}");
    struct plan p = { .model = gpt2, .cluster = eight, .seq = 1024, .micro_batch = 4,
                      .accumulation = 3, .precision = DT_BF16 };

    assert_int_equal(ds_config_read(j, "ds.json", &p, NULL), 0);
    assert_int_equal(p.micro_batch, 4);
    assert_int_equal(p.accumulation, 3);
    assert_int_equal(p.precision, DT_BF16);
    json_decref(j);
}

static void batch_sizes_must_agree(void **state)
{
    (void)state;
    struct plan p;

    accepts("{'train_micro_batch_size_per_gpu':4}", &p);
    assert_int_equal(p.accumulation, 1);
    accepts("{'train_batch_size':64,'gradient_accumulation_steps':2}", &p);
    assert_int_equal(p.micro_batch, 4);
    accepts("{'train_batch_size':64}", &p);
    assert_int_equal(p.micro_batch, 8);
    refuses("{'train_batch_size':65,'train_micro_batch_size_per_gpu':4}", "train_batch_size: 65");
    refuses("{'train_batch_size':4}", "train_batch_size: 4");
    refuses("{'train_batch_size':64,'train_micro_batch_size_per_gpu':4,"
            "'gradient_accumulation_steps':3}", "4 * accumulation 3 * 8 ranks = 96");
    refuses("{'zero_optimization':{'stage':1}}", "train_micro_batch_size_per_gpu: missing");
    refuses("{'train_batch_size':0}", "train_batch_size");
    refuses("{'train_batch_size':-8}", "train_batch_size");
    refuses("{'train_batch_size':'many'}", "train_batch_size");
}

static void what_plans_lack_is_refused_by_name(void **state)
{
    (void)state;
    static const struct { const char *zero, *says; } zero[] = {
        { "'offload_optimizer':{'device':'cpu','super_offload':true}", "offload_optimizer.super_offload: SuperOffload" },
        { "'offload_param':{'device':'nvme'}", "zero_optimization.offload_param.nvme_path: missing" },
        { "'offload_optimizer':{'device':'nvme'}", "zero_optimization.offload_optimizer.nvme_path: missing" },
        { "'offload_param':{'device':'gpu'}", "zero_optimization.offload_param.device: expected" },
        { "'offload_param':'cpu'", "zero_optimization.offload_param: expected an object" },
        { "'cpu_offload':true,'offload_optimizer':{'device':'cpu'}", "cpu_offload: DeepSpeed refuses it beside" },
        { "'cpu_offload_params':true", "write \"offload_param\"" },
        { "'zenflow':{'topk_ratio':0.1}", "zero_optimization.zenflow" },
        { "'zero_quantized_weights':1", "zero_quantized_weights" },
        { "'zero_quantized_gradients':true,'reduce_scatter':false", "reduce_scatter should also be enabled" },
        { "'mics_shard_size':4", "mics_shard_size" },
        { "'stage3_module_granularity_threshold':1000", "stage3_module_granularity_threshold" },
        { "'reduce_bucket_size':-1", "zero_optimization.reduce_bucket_size" },
        { "'reduce_bucket_size':'big'", "zero_optimization.reduce_bucket_size" },
        { "'overlap_comm':1", "zero_optimization.overlap_comm" },
    };
    char text[256];

    for (size_t i = 0; i < sizeof zero / sizeof *zero; i++) {
        snprintf(text, sizeof text, "{'train_batch_size':8,'zero_optimization':{'stage':3,%s}}",
                 zero[i].zero);
        refuses(text, zero[i].says);
    }
    refuses("{'train_batch_size':8,'amp':{'enabled':true}}", "amp");
    refuses("{'train_batch_size':8,'optimizer':{'type':'Lamb'}}", "optimizer.type: \"Lamb\"");
    refuses("{'train_batch_size':8,'optimizer':{'type':'Muon','params':{'ns_method':'standard'}},'zero_optimization':{'stage':2}}", "ns_method");
    refuses("{'train_batch_size':8,'optimizer':{'type':'Muon','params':{'per_head_muon':true}},'zero_optimization':{'stage':2}}", "per_head_muon");
    refuses("{'train_batch_size':8,'optimizer':{'type':'OneBitAdam'}}", "optimizer.type: DeepSpeed's 1-bit Adam");
    refuses("{'train_batch_size':8,'optimizer':{'type':'OnebitLamb'}}", "optimizer.type: DeepSpeed's 1-bit LAMB");
    refuses("{'train_batch_size':8,'optimizer':{'type':'ZeroOneAdam'}}", "optimizer.type: DeepSpeed's 0/1 Adam");
    refuses("{'train_batch_size':8,'tensor_parallel':{'autotp_size':4}}", "AutoTP is modelled for llama's and mistral's layers");
    refuses("{'train_batch_size':8,'bf16':{'enabled':true},'fp16':{'enabled':true}}", "both");
    refuses("{'train_batch_size':8,'prescale_gradients':true}", "prescale_gradients");
    refuses("{'train_batch_size':8,'communication_data_type':'int8'}", "communication_data_type");
    refuses("[]", "object");
}

/* Sections within zero_optimization, aio, the old spellings, and what DeepSpeed does not look at. */
static void offload_is_read_as_deepspeed_reads_it(void **state)
{
    struct plan p;
    struct notes n = { 0 };

    (void)state;
    accepts("{'train_batch_size':8,'aio':{'block_size':1048576,'queue_depth':32,'thread_count':4},'zero_optimization':{'stage':3,"
            "'sub_group_size':1e8,'offload_optimizer':{'device':'nvme','nvme_path':'/local_nvme','buffer_count':8,"
            "'pipeline_write':true,'cpuadam_cores_perc':0.5},'offload_param':{'device':'cpu','pin_memory':false,'buffer_size':5e8}}}",
            &p);
    assert_int_equal(p.ds.offload_optimizer.device, OFFLOAD_NVME);
    assert_true(p.ds.offload_optimizer.pipeline_write && p.ds.offload_optimizer.pin_memory);
    assert_int_equal(p.ds.aio.queue_depth, 32);
    assert_int_equal(p.ds.offload_param.device, OFFLOAD_CPU);
    assert_false(p.ds.offload_param.pin_memory);
    assert_int_equal(p.ds.offload_param.buffer_size, 100000000);    /* cpu: not looked at, so the default */
    assert_int_equal(p.ds.sub_group_size, 100000000);
    accepts("{'train_batch_size':8,'zero_optimization':{'stage':2,'cpu_offload':true,'cpu_offload_use_pin_memory':false}}", &p);
    assert_int_equal(p.ds.offload_optimizer.device, OFFLOAD_CPU);
    assert_true(p.ds.offload_optimizer.pin_memory);
    accepts("{'train_batch_size':8,'zero_optimization':{'stage':3,'cpu_offload_param':true,'cpu_offload':false}}", &p);
    assert_int_equal(p.ds.offload_param.device, OFFLOAD_CPU);
    assert_int_equal(p.ds.offload_optimizer.device, OFFLOAD_NONE);
    accepts("{'train_batch_size':8,'zero_optimization':{'stage':2,'offload_optimizer':{'device':'none','pin_memory':false}}}", &p);
    assert_true(p.ds.offload_optimizer.pin_memory);
    assert_int_equal(import("{'train_batch_size':8,'zero_optimization':{'stage':2,'offload_param':{'device':'cpu'}}}", &p, &n), 0);
    assert_true(n.n == 1 && noted(&n, "no effect below stage 3"));
    refuses("{'train_batch_size':8,'zero_optimization':{'stage':0,'offload_optimizer':{'device':'cpu'}}}", "stages 1, 2 and 3");
    refuses("{'train_batch_size':8,'zero_optimization':{'stage':2,'offload_optimizer':{'device':'cpu','ratio':0.5}}}",
            "offload_optimizer.ratio: DeepSpeed takes a share below 1 in stage 3 only");
}

static void unknown_keys_are_noted(void **state)
{
    (void)state;
    struct plan p;
    struct notes n = { 0 };

    assert_int_equal(import("{'train_batch_size':8,'reduce_buket_size':1,'steps_per_print':5,"
                            "'zero_optimization':{'stage':1,'speed':'warp'}}", &p, &n), 0);
    assert_int_equal(n.n, 2);
    assert_true(noted(&n, "reduce_buket_size"));
    assert_true(noted(&n, "zero_optimization.speed"));
}

/* Without them DeepSpeed has no files: the export says so. */
static void name_folders(struct plan *p)
{
    bool stage3 = p->strategy == STRAT_ZERO3;

    if (stage3 && p->ds.offload_optimizer.device == OFFLOAD_NVME)
        strcpy(p->ds.offload_optimizer.nvme_path, "/local_nvme");
    if (stage3 && p->ds.offload_param.device == OFFLOAD_NVME)
        strcpy(p->ds.offload_param.nvme_path, "/local_nvme");
}

static void a_disk_without_a_folder_is_not_exported(void **state)
{
    struct plan p = { .model = gpt2, .cluster = eight, .seq = 16, .micro_batch = 1 };

    (void)state;
    plan_defaults(&p, STRAT_ZERO3, DIALECT_DEEPSPEED, DT_BF16);
    p.ds.offload_param.device = OFFLOAD_NVME;
    plan_resolve(&p);
    fail_capture(said, sizeof said);
    assert_null(ds_config_export(&p));
    fail_capture(NULL, 0);
    assert_non_null(strstr(said, "deepspeed.offload_param.nvme_path: DeepSpeed needs it"));
}

/* DeepSpeed plans of every stage with every option. */
static void export_then_import_is_the_same_plan(void **state)
{
    (void)state;
    uint64_t rng = 7;
    int tried = 0;

    while (tried < 300) {
        struct plan p, q = { 0 };
        json_t *ds, *a, *b;
        draw_plan(&gpt2, &eight, &rng, &p);
        if (p.dialect != DIALECT_DEEPSPEED || p.deterministic)
            continue;
        name_folders(&p);
        ds = ds_config_export(&p);
        assert_non_null(ds);
        q.model = gpt2;
        q.cluster = eight;
        q.seq = p.seq;
        if (ds_config_read(ds, "exported", &q, NULL) < 0) {
            json_dumpf(ds, stderr, JSON_INDENT(1));
            fail_msg("plan %d was not read back", tried);
        }
        q.environment = p.environment;          /* the job's */
        q.cluster.nccl = p.cluster.nccl;
        a = plan_to_json(&p);
        b = plan_to_json(&q);
        if (!json_equal(a, b)) {
            json_dumpf(a, stderr, JSON_INDENT(1));
            json_dumpf(b, stderr, JSON_INDENT(1));
            fail_msg("plan %d changed", tried);
        }
        json_decref(ds);
        json_decref(a);
        json_decref(b);
        tried++;
    }
}

/* The Trainer and accelerate put the script's numbers in the place of "auto"; a number of ours, or none, would be DeepSpeed's 1e-3. */
static void an_export_leaves_the_learning_rate_to_the_script(void **state)
{
    static const char *const trained[] = { "lr", "betas", "eps", "weight_decay" };

    (void)state;
    for (int form = 0; form < NOPTIMIZER_FORM; form++) {
        struct plan p = { .model = gpt2, .cluster = eight, .seq = 64, .micro_batch = 1 }, q = { .model = gpt2, .cluster = eight, .seq = 64 };
        plan_defaults(&p, STRAT_ZERO2, DIALECT_DEEPSPEED, DT_BF16);
        p.optimizer_form = (enum optimizer_form)form;
        json_t *doc = ds_config_export(&p), *params = json_object_get(json_object_get(doc, "optimizer"), "params");
        for (int i = 0; i < 4; i++)
            assert_string_equal(json_string_value(json_object_get(params, trained[i])), "auto");
        assert_true(json_is_true(json_object_get(params, "torch_adam")) == (form != OPTIMIZER_FUSED));
        assert_int_equal(ds_config_read(doc, "ds.json", &q, NULL), 0);
        assert_int_equal(q.optimizer_form, form);
        json_decref(doc);
    }
}

/* "auto" is the Trainer's, whose from_pretrained() works under zero.Init; of the optimizer's numbers it is what dpx exports. */
static void auto_says_that_transformers_builds_the_model(void **state)
{
    struct plan p;

    (void)state;
    accepts("{'train_batch_size':8,'zero_optimization':{'stage':3}}", &p);
    assert_false(p.ds.zero_init);
    accepts("{'train_batch_size':8,'zero_optimization':{'stage':3,'reduce_bucket_size':'auto'}}", &p);
    assert_true(p.ds.zero_init);
    accepts("{'train_batch_size':8,'zero_optimization':{'stage':2,'reduce_bucket_size':'auto'}}", &p);
    assert_false(p.ds.zero_init);
    accepts("{'train_batch_size':8,'zero_optimization':{'stage':3},'optimizer':{'type':'AdamW','params':{'lr':'auto'}}}", &p);
    assert_false(p.ds.zero_init);
    accepts("{'train_batch_size':8,'zero_optimization':{'stage':3},'dpx':{'zero_init':true}}", &p);
    assert_true(p.ds.zero_init);
}

static void only_deepspeeds_plans_are_exported(void **state)
{
    (void)state;
    struct plan p = { .model = gpt2, .cluster = eight, .seq = 64, .micro_batch = 1 };

    fail_capture(said, sizeof said);
    plan_defaults(&p, STRAT_FSDP, DIALECT_TORCH, DT_BF16);
    assert_null(ds_config_export(&p));
    assert_non_null(strstr(said, "dialect"));
    plan_defaults(&p, STRAT_ZERO2, DIALECT_DEEPSPEED, DT_BF16);
    p.deterministic = true;
    assert_null(ds_config_export(&p));
    assert_non_null(strstr(said, "deterministic"));
    fail_capture(NULL, 0);
}

/* config.py's _REMOVED_TOP_LEVEL_CONFIG_KEYS and _REMOVED_ZERO_CONFIG_KEYS: present is enough. */
static void deepspeed_0_19_8_refuses_the_keys_that_it_removed(void **state)
{
    (void)state;
    static const char *const top[] = { "nebula", "compression_training", "amp", "quantize_training",
        "sparse_gradients", "eigenvalue", "sparse_attention", "elasticity", "graph_harvesting",
        "curriculum_learning", "progressive_layer_drop" };
    static const char *const zero[] = { "mics_shard_size", "mics_hierarchical_params_gather",
        "zeropp_loco_param" };
    char text[256], word[96];
    struct plan p;

    for (size_t i = 0; i < sizeof top / sizeof *top; i++) {
        snprintf(text, sizeof text, "{'train_batch_size':8,'%s':{}}", top[i]);
        accepts(text, &p);
        snprintf(text, sizeof text, "{'train_batch_size':8,'%s':{},"
                 "'dpx':{'framework_version':'0.19.8'}}", top[i]);
        snprintf(word, sizeof word, "%s: DeepSpeed 0.19.8 refuses this key", top[i]);
        refuses(text, word);
    }
    refuses("{'train_batch_size':8,'compile':{'disable':false,'backend':'inductor'},'dpx':{'framework_version':'0.19.8'}}",
            "compile.disable: DeepSpeed 0.19.8 refuses this key");
    accepts("{'train_batch_size':8,'compile':{'disable':false}}", &p);
    accepts("{'train_batch_size':8,'compile':{'deepcompile':false},'dpx':{'framework_version':'0.19.8'}}", &p);
    refuses("{'train_batch_size':8,'compile':{'deepcompile':true}}", "compile.deepcompile");
    for (size_t i = 0; i < sizeof zero / sizeof *zero; i++) {
        snprintf(text, sizeof text, "{'train_batch_size':8,'zero_optimization':{'stage':3,'%s':null},"
                 "'dpx':{'framework_version':'0.19.8'}}", zero[i]);
        snprintf(word, sizeof word, "zero_optimization.%s: DeepSpeed 0.19.8 refuses this key", zero[i]);
        refuses(text, word);
    }
}

static void what_0_19_8_brought_is_read(void **state)
{
    (void)state;
    struct plan p;

    accepts("{'train_batch_size':8,'gradient_clipping':0,'dpx':{'framework_version':'0.19.8'},"
            "'zero_optimization':{'stage':2,'compute_grad_norm':false}}", &p);
    assert_false(p.ds.compute_grad_norm);
    refuses("{'train_batch_size':8,'gradient_clipping':1,'dpx':{'framework_version':'0.19.8'},"
            "'zero_optimization':{'stage':2,'compute_grad_norm':false}}", "requires clip 0");
    refuses("{'train_batch_size':8,'gradient_clipping':0,"
            "'zero_optimization':{'stage':2,'compute_grad_norm':false}}", "from 0.19.8 on");
    accepts("{'train_batch_size':8,'bf16':{'enabled':true},'dpx':{'framework_version':'0.19.8'},"
            "'zero_optimization':{'stage':2},'data_types':{'grad_accum_dtype':'fp32'}}", &p);
    assert_true(p.ds.grad_accum_fp32);
    accepts("{'train_batch_size':8,'optimizer':{'type':'Muon','params':{'lr':0.02}},'zero_optimization':{'stage':1}}", &p);
    assert_int_equal(p.optimizer, OPTIMIZER_MUON);
    assert_string_equal(p.framework_version, "0.19.8");
    json_t *back = ds_config_export(&p);
    assert_string_equal(json_string_value(json_object_get(json_object_get(back, "optimizer"), "type")), "Muon");
    json_decref(back);
    accepts("{'train_batch_size':8,'bf16':{'enabled':true},"   /* 0.19.6: in bf16 all the same */
            "'zero_optimization':{'stage':2},'data_types':{'grad_accum_dtype':'fp32'}}", &p);
    assert_false(p.ds.grad_accum_fp32);
    refuses("{'train_batch_size':8,'zero_optimization':{'stage':2,'parameter_alignment':true}}",
            "parameter_alignment");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_usual_config_becomes_its_plan),
        cmocka_unit_test(what_waits_is_told), cmocka_unit_test(stages_and_their_defaults),
        cmocka_unit_test(auto_values_come_from_the_hidden_size),
        cmocka_unit_test(a_field_with_two_names_is_read_by_both),
        cmocka_unit_test(the_command_line_fills_in_auto),
        cmocka_unit_test(batch_sizes_must_agree),
        cmocka_unit_test(what_plans_lack_is_refused_by_name),
        cmocka_unit_test(offload_is_read_as_deepspeed_reads_it),
        cmocka_unit_test(unknown_keys_are_noted),
        cmocka_unit_test(a_disk_without_a_folder_is_not_exported),
        cmocka_unit_test(export_then_import_is_the_same_plan),
        cmocka_unit_test(an_export_leaves_the_learning_rate_to_the_script),
        cmocka_unit_test(auto_says_that_transformers_builds_the_model),
        cmocka_unit_test(only_deepspeeds_plans_are_exported),
        cmocka_unit_test(deepspeed_0_19_8_refuses_the_keys_that_it_removed),
        cmocka_unit_test(what_0_19_8_brought_is_read),
    };
    int rc;

    if (model_load("gpt2", &gpt2) < 0 || cluster_load("8xh100", &eight) < 0)
        return 1;
    rc = cmocka_run_group_tests_name("model/ds_config", tests, NULL, NULL);
    model_free(&gpt2);
    return rc;
}
