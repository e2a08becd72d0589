/* Plans from torchtitan's configs, and back.  Expected values are torchtitan 0.2.2's own rules (config/job_config.py,
 * distributed/parallel_dims.py, distributed/pipeline_parallel.py), redone by hand. */
#include "tests/plan_words.h"

#include <stdlib.h>
#include <string.h>

#include "model/cluster/cluster.h"
#include "model/exchange/export.h"
#include "model/exchange/titan_import.h"
#include "model/exchange/titan_registry.h"
#include "model/exchange/titan_text.h"
#include "model/plan/root_units.h"

static struct plan p;
static char why[512];

/* 0, or -1 with the reason in why[]. */
static int read_config(const char *text, const char *model, const char *cluster)
{
    struct notes notes = { 0 };
    int rc = -1;

    memset(&p, 0, sizeof p);
    assert_int_equal(model_load(model, &p.model), 0);
    assert_int_equal(cluster_load(cluster, &p.cluster), 0);
    fail_capture(why, sizeof why);
    json_t *config = titan_text(text, "t");
    if (config)
        rc = titan_read(config, "t", &p, &notes);
    fail_capture(NULL, 0);
    json_decref(config);
    return rc;
}

static void reads(const char *text, const char *model, const char *cluster)
{
    if (read_config(text, model, cluster) < 0)
        fail_msg("%s", why);
}

static void refuses_of(const char *model, const char *text, const char *because)
{
    if (read_config(text, model, "8x8xh100") == 0 || !strstr(why, because))
        fail_msg("%s: refused with \"%s\", not \"%s\"", text, why, because);
    plan_free(&p);
}

static void refuses(const char *text, const char *because) { refuses_of("llama-3.1-8b", text, because); }

static void a_file_is_read_as_torchtitan_does(void **state)
{
    (void)state;
    reads("[training]  # a comment\nlocal_batch_size = 12\nseq_len = 8_192\nmax_norm = 1.0\n[parallelism]\ndata_parallel_shard_degree = -1\n"
          "tensor_parallel_degree = 8\nenable_async_tensor_parallel = true\n[compile]\nenable=true\ncomponents = [\n  \"model\",\n]\n"
          "[activation_checkpoint]\nmode = 'selective'\nselective_ac_option = \"op\"\n", "llama-3.1-8b", "8x8xh100");
    assert_int_equal(p.strategy, STRAT_FSDP);
    assert_int_equal(p.micro_batch, 12);
    assert_int_equal(p.seq, 8192);
    assert_int_equal(p.parallel.tensor, 8);
    assert_true(p.parallel.async_tensor && p.parallel.sequence && p.parallel.loss_parallel);
    assert_int_equal(p.shard_group, 8);                     /* 64 / 8 */
    assert_int_equal(p.kernels, KERNELS_TORCH_COMPILE);
    assert_int_equal(p.loss, LOSS_FP32);
    assert_int_equal(p.recompute, RECOMPUTE_OP);
    assert_int_equal(p.reduce_dtype, DT_FP32);
    plan_free(&p);
}

/* Eight samples, AdamW fused, every second block recomputed, bf16 reduced in fp32, norm 1, 2048 tokens. */
static void what_is_left_out_is_its_default(void **state)
{
    (void)state;
    reads("[training]\n", "llama-3.1-8b", "8xh100");
    assert_int_equal(p.micro_batch, 8);
    assert_int_equal(p.accumulation, 1);
    assert_int_equal(p.seq, 2048);
    assert_int_equal(p.recompute, RECOMPUTE_FULL);
    assert_int_equal(p.recompute_interval, 2);
    assert_int_equal(p.optimizer_form, OPTIMIZER_FUSED);
    assert_close(p.clip, 1, 0);
    assert_int_equal(p.precision, DT_BF16);
    assert_int_equal(p.shard_group, 8);
    plan_free(&p);
}

/* 4 ranks of pipeline x 2 of tensor leave 8: 2 copies of 4 shards.  16 samples in micro-batches of 2 are 8 micro-steps.  Of 32
 * blocks and two ends five a stage are 7 stages, which 4 does not divide; nine a stage are 4. */
static void a_pipelines_micro_steps_are_cut_from_the_local_batch(void **state)
{
    const char *text = "[training]\nlocal_batch_size = 16\n[activation_checkpoint]\nmode = \"none\"\n[parallelism]\n"
                       "data_parallel_replicate_degree = 2\ntensor_parallel_degree = 2\npipeline_parallel_degree = 4\n"
                       "pipeline_parallel_microbatch_size = 2\npipeline_parallel_schedule = \"%s\"\n"
                       "pipeline_parallel_layers_per_stage = %d\n";
    char with[512];

    (void)state;
    snprintf(with, sizeof with, text, "1F1B", 9);
    reads(with, "llama-3.1-8b", "8x8xh100");
    assert_int_equal(p.parallel.pipeline, 4);
    assert_int_equal(p.parallel.virtual_stages, 1);
    assert_int_equal(p.micro_batch, 2);
    assert_int_equal(p.accumulation, 8);
    assert_int_equal(p.shard_group, 4);
    plan_free(&p);
    snprintf(with, sizeof with, text, "1F1B", 5);
    refuses(with, "layers_per_stage");
    snprintf(with, sizeof with, text, "Interleaved1F1B", 3);        /* 12 stages: 3 a rank */
    reads(with, "llama-3.1-8b", "8x8xh100");
    assert_int_equal(p.parallel.pipeline_schedule, PIPELINE_INTERLEAVED);
    assert_int_equal(p.parallel.virtual_stages, 3);
    plan_free(&p);
}

/* 64 samples a step on 4 ranks that take other samples, 2 at a time. */
static void accumulation_follows_from_the_global_batch(void **state)
{
    (void)state;
    reads("[training]\nlocal_batch_size = 2\nglobal_batch_size = 64\n[parallelism]\ncontext_parallel_degree = 2\n"
          "context_parallel_rotate_method = \"alltoall\"\n", "llama-3.1-8b", "8xh100");
    assert_int_equal(p.accumulation, 8);
    assert_int_equal(p.shard_group, 8);                     /* context's ranks are in it */
    assert_int_equal(p.parallel.context_method, CONTEXT_RING);
    plan_free(&p);
    reads("[parallelism]\ndata_parallel_replicate_degree = 8\ndata_parallel_shard_degree = 1\n[activation_checkpoint]\nmode=\"none\"\n",
          "llama-3.1-8b", "8xh100");
    assert_int_equal(p.strategy, STRAT_DDP);
    plan_free(&p);
}

/* 2024: degrees were in [training] and [experimental]. */
static void keys_are_found_where_they_were(void **state)
{
    (void)state;
    reads("[training]\nbatch_size = 4\nseq_len = 4096\ntensor_parallel_degree = 4\ncompile = true\n[experimental]\npipeline_parallel_degree = 1\n"
          "context_parallel_degree = 1\n", "llama-3.1-8b", "8xh100");
    assert_int_equal(p.micro_batch, 4);
    assert_int_equal(p.parallel.tensor, 4);
    assert_int_equal(p.kernels, KERNELS_TORCH_COMPILE);
    plan_free(&p);
}

/* 2024: the head is left out; 0.2.2: what filter_fqns says, nothing by default. */
static void float8_layers_are_read(void **state)
{
    (void)state;
    reads("[float8]\nenable_float8_linear = true\nenable_fsdp_float8_all_gather = true\nprecompute_float8_dynamic_scale_for_fsdp = true\n",
          "llama-3.1-8b", "8xh100");
    assert_int_equal(p.float8.recipe, FLOAT8_TENSORWISE);
    assert_string_equal(p.float8.filter, "");
    assert_true(p.fsdp.float8_all_gather && p.fsdp.float8_precomputed);
    plan_free(&p);
    reads("[model]\nconverters = [\"float8\"]\n[float8]\nrecipe_name = \"rowwise\"\nfilter_fqns = [\"output\", \"attention.wk\", \"attention.wv\"]\n",
          "llama-3.1-8b", "8xh100");
    assert_int_equal(p.float8.recipe, FLOAT8_ROWWISE);
    assert_string_equal(p.float8.filter, "lm_head,k_proj,v_proj");
    plan_free(&p);
    reads("[model]\nconverters = [\"float8\"]\n[float8]\nfilter_fqns = [\"output\"]\n", "llama-3.1-8b", "8xh100");
    assert_string_equal(p.float8.filter, "");
    plan_free(&p);
    reads("[model]\nconverters = [\"float8\"]\n", "llama-3.1-8b", "8xh100");
    assert_string_equal(p.float8.filter, "none");
    plan_free(&p);
    reads("[float8]\nenable_fsdp_float8_all_gather = true\n", "llama-3.1-8b", "8xh100");     /* without a converter it says nothing */
    assert_int_equal(p.float8.recipe, FLOAT8_NONE);
    assert_false(p.fsdp.float8_all_gather);
    plan_free(&p);
}

/* torchtitan's docs/float8.md: the section is [quantize.linear.float8] since 2025; of options "--key=value" and quotes are usual, and a list is
 * a text with commas. */
static void float8_is_read_however_it_is_written(void **state)
{
    static const char *const texts[] = {
        "[model]\nconverters = [\"quantize.linear.float8\"]\n[training]\nseq_len = 8192\n[quantize.linear.float8]\n"
        "enable_fsdp_float8_all_gather = true\nprecompute_float8_dynamic_scale_for_fsdp = true\nfilter_fqns = [\"attention.wk\", \"output\"]\n",
        "--model.converters quantize.linear.float8 --training.seq_len 8192 --quantize.linear.float8.enable_fsdp_float8_all_gather\n"
        "--quantize.linear.float8.precompute-float8-dynamic-scale-for-fsdp --quantize.linear.float8.filter_fqns attention.wk,output\n",
        "--model.converters=\"quantize.linear.float8\" --training.seq_len=8192 --quantize.linear.float8.enable_fsdp_float8_all_gather=true\n"
        "--quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp --quantize.linear.float8.filter_fqns='attention.wk,output'\n",
    };

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        reads(texts[i], "llama-3.1-8b", "8xh100");
        assert_int_equal(p.seq, 8192);
        assert_int_equal(p.float8.recipe, FLOAT8_TENSORWISE);
        assert_true(p.fsdp.float8_all_gather && p.fsdp.float8_precomputed);
        assert_string_equal(p.float8.filter, "k_proj,lm_head");
        plan_free(&p);
    }
    refuses("--parallelism.no-enable_sequence_parallel=true\n", "without a value");
    refuses("--model.converters=float8 --quantize.linear.float8.filter_fqns=nosuch\n", "\"nosuch\"");
}

static void what_no_plan_has_is_refused_by_name(void **state)
{
    static const struct { const char *text, *because; } row[] = {
        { "[model]\nconverters = [\"mx\"]\n", "model.converters" },
        { "[model]\nconverters = [\"float8\"]\n[float8]\nrecipe_name = \"delayed\"\n", "float8.recipe_name: expected tensorwise" },
        { "[model]\nconverters = [\"float8\"]\n[float8]\nfilter_fqns = [\"router\"]\n", "\"router\": layers that float8 leaves out" },
        { "[model]\nconverters = [\"float8\"]\n[float8]\nemulate = true\n", "float8.emulate" },
        { "[parallelism]\nexpert_parallel_degree = 2\n", "parallel.expert: llama-3.1-8b has no experts" },
        { "[parallelism]\nexpert_tensor_parallel_degree = 2\n", "expert_tensor_parallel_degree: experts that tensor-parallel ranks cut" },
        { "[parallelism]\ntensor_parallel_degre = 2\n", "tensor_parallel_degre: unknown key" },
        { "[parallelism]\ntensor_parallel_degree = 8\ndata_parallel_replicate_degree = 8\n", "DDP has not supported > 1D" },
        { "[parallelism]\ntensor_parallel_degree = 3\n", "are not the cluster's 64 ranks" },
        { "[parallelism]\ntensor_parallel_degree = \"4\"\n", "a whole number" },
        { "[parallelism]\npipeline_parallel_schedule_csv = \"mine.csv\"\n", "schedule_csv" },
        { "[parallelism]\nfsdp_reshard_after_forward = \"sometimes\"\n", "default, always, never" },
        { "[parallelism]\ncontext_parallel_degree = 2\ncontext_parallel_load_balancer = \"ptrr\"\n", "headtail" },
        { "[optimizer]\nname = \"Adam\"\n", "optimizer.name: expected AdamW" },
        { "[activation_checkpoint]\nmode = \"memory_budget\"\n", "selective, full, none" },
        { "[training]\nglobal_batch_size = 100\n", "global_batch_size" },
        { "[training]\ndtype = \"bfloat16\"\n", "training.dtype" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        refuses(row[i].text, row[i].because);
}

static void bad_text_is_reported_with_its_place(void **state)
{
    static const struct { const char *text, *because; } row[] = {
        { "", "sections with keys" }, { "[training\n", "t:1: expected [section]" }, { "\nseq_len\n", "no command of it starts torchtitan" }, { "a = 1 2\n", "t:1: expected the end" },
        { "a = \"x\nb = 1", "t:1: expected the end of a string" }, { "a = [1, 2", "t:1: expected" }, { "a = { b = }\n", "t:1: expected a string" },
        { "a = word\n", "t:1: expected a string" }, { "a = 1\n[a.b]\n", "t:2: expected a table" },
        { "--training.seq-len 8\nloose\n", "expected --section.key VALUE, or name:choice, not \"loose\"" }, { "--training. 8\n", "expected --section.key, not \"--training.\"" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        refuses(row[i].text, row[i].because);
}

/* ---- what is not read ---- */

static bool noted(const struct notes *n, const char *words)
{
    for (int i = 0; i < n->n && i < 24; i++)
        if (strstr(n->text[i], words))
            return true;
    return false;
}

static struct notes notes_on(const char *model, const char *text)
{
    struct notes notes = { 0 };
    struct plan q = { 0 };

    assert_int_equal(model_load(model, &q.model), 0);
    assert_int_equal(cluster_load("8xh100", &q.cluster), 0);
    json_t *config = titan_text(text, "t");
    assert_non_null(config);
    assert_int_equal(titan_read(config, "t", &q, &notes), 0);
    json_decref(config);
    plan_free(&q);
    return notes;
}

static struct notes notes_of(const char *text) { return notes_on("llama-3.1-8b", text); }

/* 128256 x 2048 weights, 7 of 8 parts of which come from other ranks: twice more in 2 bytes, their gradient once more in 4. */
static void a_tied_table_was_in_two_units(void **state)
{
    (void)state;
    struct notes n = notes_on("llama-3.2-1b", "[training]\nlocal_batch_size = 1\nseq_len = 4096\n");
    assert_true(noted(&n, "gathers it in two units, twice more a micro-step, and reduces its gradient once more: 1.8 GB more sent"));
    n = notes_of("[training]\nlocal_batch_size = 1\nseq_len = 4096\n");
    assert_false(noted(&n, "in two units"));
}

static void optimizers_were_fused_by_a_flag(void **state)
{
    (void)state;
    reads("[training]\nbatch_size = 1\n[optimizer]\nfused = false\n", "llama-3.1-8b", "8xh100");
    assert_int_equal(p.optimizer_form, OPTIMIZER_FOREACH);
    plan_free(&p);
    reads("[training]\nbatch_size = 1\n[optimizer]\nfused = true\n", "llama-3.1-8b", "8xh100");
    assert_int_equal(p.optimizer_form, OPTIMIZER_FUSED);
    plan_free(&p);
}

/* Each key is read, or is in a line: what matters with its reason, what nobody knows; what says nothing of a step is in none. */
static void what_is_not_read_is_listed_in_every_section(void **state)
{
    (void)state;
    struct notes n = notes_of("[job]\ndump_folder = \"./outputs\"\n[training]\nlocal_batch_sise = 4\nseq_len = 8192\nsteps = 10\n"
                              "[optimizer]\nlr = 3e-4\nearly_step_in_backward = true\n[compile]\nenable = true\nbackend = \"inductor\"\n"
                              "[activation_checkpoint]\nmode = \"full\"\nmod = 1\n[mystery]\nkey = 1\n[checkpoint]\ninterval = 500\n"
                              "[model]\nconverters = [\"quantize.linear.float8\"]\n[quantize.linear.float8]\nfilter_fqns = [\"output\"]\nfilter = 1\n");
    assert_true(noted(&n, "optimizer.early_step_in_backward is not in the plan: the optimizer steps within backward"));
    assert_true(noted(&n, "not known, and may matter to memory or time: training.local_batch_sise, activation_checkpoint.mod, mystery.key"));
    assert_true(noted(&n, "quantize.linear.float8.filter"));
    assert_false(noted(&n, "optimizer.lr"));
    assert_false(noted(&n, "seq_len") || noted(&n, "filter_fqns") || noted(&n, "activation_checkpoint.mode,"));
    n = notes_of("[training]\nbatch_size = 4\ntensor_parallel_degree = 4\n[experimental]\ncontext_parallel_degree = 1\n");
    assert_int_equal(n.n, 1);
    assert_true(noted(&n, "fsdp.root_units \"apart\""));
    n = notes_of("--compile.backend aot_eager --parallelism.enable-compiled-autograd\n");
    assert_true(noted(&n, "compile.backend is not in the plan") && noted(&n, "enable_compiled_autograd is not in the plan"));
}

/* ---- commands ---- */

/* As its README and benchmarks give them: variables before the script, lines that go on, a pipe behind. */
static void a_command_is_read_to_its_end(void **state)
{
    static const char *const texts[] = {
        "NGPU=8 ./run_train.sh --training.seq_len 8192 \\\n  --parallelism.tensor_parallel_degree 2 \\\n --training.local_batch_size 4\n",
        "#!/bin/bash\nset -ex\nexport NCCL_DEBUG=INFO\nLOG_RANK=0,1 NGPU=8 MODULE=llama3 CONFIG=\"llama3_8b\" ./torchtitan/run_train.sh \\\r\n"
        "--training.seq_len=8192 --parallelism.tensor_parallel_degree=2 --training.local_batch_size=4 2>&1 | tee log.txt\n",
        "torchrun --nproc_per_node=8 --rdzv_backend c10d -m torchtitan.train --training.seq-len 8192 --parallelism.tensor-parallel-degree 2 "
        "--training.local-batch-size 4 > log",
        "--training.seq_len 8192 \\\n --parallelism.tensor_parallel_degree 2 \\\n --training.local_batch_size 4",
    };

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        reads(texts[i], "llama-3.1-8b", "8xh100");
        assert_int_equal(p.seq, 8192);
        assert_int_equal(p.parallel.tensor, 2);
        assert_int_equal(p.micro_batch, 4);
        plan_free(&p);
    }
    json_t *config = titan_text(texts[1], "t");
    assert_string_equal(titan_model(config), "llama-3.1-8b");
    json_decref(config);
    refuses("./run_train.sh --training.seq_len 8192 loose\n", "expected --section.key");
    refuses("./run_train.sh ac\x84\x8b:n\n", "UTF-8");
    refuses("./run_train.sh --training.ac\x84 8192\n", "UTF-8");
    refuses("./run_train.sh --ac\x84.seq_len 8192\n", "UTF-8");
    refuses("--training.seq_len 8192 --ac\x84.mode full\n", "UTF-8");
    refuses("./run_train.sh --training.seq_len $SEQ\n", "whole number");
}

/* What a script sets itself is followed, however its command starts torchtitan; its own arguments are nobody's. */
static void a_script_is_followed(void **state)
{
    static const char *const texts[] = {
        "set -ex\nMODULE=${MODULE:-\"llama3\"}\nCONFIG=${CONFIG:-\"llama3_70b\"}\nif [ -n \"$X\" ]; then echo x; fi\n"
        "torchrun -m torchtitan.train --module ${MODULE} --config ${CONFIG} \"$@\" --training.seq_len 4096\n",
        "torchrun --nproc_per_node=8 -m torchtitan.train --module llama3 --config llama3_70b --training.seq_len 4096 \"${@:2}\"\n",
        "MODE=\nif [ -n \"$MODE\" ]; then\n  python -m torchtitan.train --module llama3 --config llama3_8b --training.seq_len 1024\n"
        "else\n  python -m torchtitan.train --module llama3 --config llama3_70b --training.seq_len 4096 $*\nfi\n",
        "TRAIN=${TRAIN:-\"torchtitan.train\"}\nSEQ=4096\ntorchrun -m ${TRAIN} --module=llama3 --config=llama3_70b --training.seq_len=$SEQ ${@}\n",
        "[ -d out ] || mkdir out\nARGS=(--module llama3 --config llama3_70b)\npython torchtitan/train.py \"${ARGS[@]}\" --training.seq_len '4096' | tee out/log\n",
        "export CONFIG=llama3_8b MODULE=llama3\nCONFIG=llama3_70b \"./run_train.sh\" --training.seq_len 4096 \"$@\"\n",
        "srun env MODULE=llama3 CONFIG=llama3_70b bash run_train.sh --training.seq_len 4096\necho done\n",
        "CONFIG=llama3_8b MODULE=llama3\ntorchrun -m torchtitan.train --module llama3 --config llama3_70b --training.seq_len 4096\n",
    };

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        json_t *config = titan_text(texts[i], "t");
        if (!config || !titan_model(config))
            fail_msg("not read: %s", texts[i]);
        json_decref(config);
        reads(texts[i], "llama-3.1-70b", "32x8xh100");
        assert_int_equal(p.seq, 4096);
        assert_int_equal(p.parallel.tensor, 8);
        assert_int_equal(p.micro_batch, 8);
        plan_free(&p);
    }
    refuses("python -m torchtitan.train --module llama3 --config $1 \"${@:2}\"\n", "the script does not say the value of $1");
    refuses("CONFIG=llama3_secret MODULE=llama3 ./run_train.sh\n", "the values of llama3_secret are in torchtitan's config_registry.py");
    refuses("python -m torchtitan.train --module llama3 $EXTRA\n", "not \"$EXTRA\"");
    refuses("set -ex\npython -m mine.eval --training.seq_len 1\n", "no command of it starts torchtitan");
}

/* CONFIG_FILE is read where it is, or beside the command, under what the options say. */
static void the_file_of_a_command_is_read_below_its_options(void **state)
{
    char folder[] = "/tmp/dpx-titan-XXXXXX", path[2][64];
    FILE *f;

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path[0], sizeof path[0], "%s/llama3_8b.toml", folder);
    snprintf(path[1], sizeof path[1], "%s/run.sh", folder);
    assert_non_null(f = fopen(path[0], "w"));
    fputs("[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nlocal_batch_size = 1\nseq_len = 8192\n", f);
    fclose(f);
    assert_non_null(f = fopen(path[1], "w"));
    fputs("CONFIG_FILE=\"./torchtitan/models/llama3/train_configs/llama3_8b.toml\" ./run_train.sh --training.local_batch_size 2\n", f);
    fclose(f);
    json_t *config = titan_read_file(path[1]);
    assert_non_null(config);
    assert_string_equal(titan_model(config), "llama-3.1-8b");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(config, "training"), "seq_len")), 8192);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(config, "training"), "local_batch_size")), 2);
    json_decref(config);
    remove(path[0]);
    fail_capture(why, sizeof why);
    assert_null(titan_read_file(path[1]));
    fail_capture(NULL, 0);
    assert_non_null(strstr(why, "job.config_file"));
    remove(path[1]);
    remove(folder);
}

/* ---- round trips ---- */

/* A plan that torchtitan can say comes back as it was: 0.3.0's options hold all of it. */
static void what_is_exported_is_imported_again(void **state)
{
    static const char *const words[] = {
        "\"micro_batch\": 2, \"accumulation\": 3", "\"shard_group\": 4, \"recompute\": \"full\", \"clip\": 1.0",
        "\"parallel\": { \"tensor\": 4 }, \"fsdp\": { \"reshard_after_forward\": false }", "\"parallel\": { \"tensor\": 2, \"sequence\": false }",
        "\"parallel\": { \"pipeline\": 4 }, \"micro_batch\": 2, \"accumulation\": 8, \"recompute\": \"full\"",
        "\"parallel\": { \"pipeline\": 2, \"pipeline_schedule\": \"zbv\", \"tensor\": 2 }, \"accumulation\": 8",
        "\"parallel\": { \"pipeline\": 2, \"pipeline_schedule\": \"interleaved\", \"virtual_stages\": 6 }, \"accumulation\": 8",
        "\"kernels\": \"torch-compile\", \"parallel\": { \"tensor\": 8, \"async_tensor\": true }, \"optimizer_form\": \"fused\"",
        "\"kernels\": \"torch-compile\", \"loss\": \"compiled\"", "\"fsdp\": { \"cpu_offload\": true }, \"precision\": \"fp32\"",
    };

    (void)state;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        char *said;
        size_t size;

        struct plan before = plan_in_words("{ 'dpx_plan': 1, 'model': 'llama-3.1-8b', 'cluster': '2x8xh100', 'strategy': 'fsdp', 'dialect': 'torch',"
                                           " 'seq': 4096, 'precision': 'bf16', 'reduce_dtype': 'fp32', %s }", words[i]);
        FILE *f = open_memstream(&said, &size);
        before.fsdp.root_units = root_units_of_torchtitan(&before);
        assert_int_equal(export_plan(&before, "torchtitan", f), 0);
        fclose(f);
        reads(said, "llama-3.1-8b", "2x8xh100");
        json_t *a = plan_to_json(&before), *b = plan_to_json(&p);
        if (!json_equal(a, b)) {
            char *x = json_dumps(a, JSON_INDENT(1)), *y = json_dumps(b, JSON_INDENT(1));
            fail_msg("%s: %s\n%s\n%s", words[i], said, x, y);
        }
        json_decref(a);
        json_decref(b);
        free(said);
        plan_free(&before);
        plan_free(&p);
    }
}

static void its_models_have_names_here(void **state)
{
    static const struct { const char *text, *model; } row[] = {
        { "[model]\nname = \"llama3\"\nflavor = \"70B\"\n", "llama-3.1-70b" }, { "--module llama3 --config llama3_8b\n", "llama-3.1-8b" },
        { "[model]\nname = \"llama3\"\nflavor = \"debugmodel\"\n", NULL },
    };

    (void)state;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        json_t *config = titan_text(row[i].text, "t");
        const char *got = titan_model(config);
        assert_true((got == NULL) == (row[i].model == NULL) && (!got || !strcmp(got, row[i].model)));
        json_decref(config);
    }
}

/* Values of config_registry.py, read there; an option beside the name takes their place. */
static void a_config_is_known_by_its_name(void **state)
{
    (void)state;
    reads("MODULE=llama3 CONFIG=llama3_8b ./run_train.sh", "llama-3.1-8b", "8xh100");
    assert_true(p.seq == 8192 && p.micro_batch == 1 && p.parallel.tensor == 1 && p.recompute == RECOMPUTE_OP);
    plan_free(&p);
    reads("MODULE=llama3 CONFIG=llama3_70b ./run_train.sh", "llama-3.1-70b", "32x8xh100");
    assert_true(p.seq == 8192 && p.micro_batch == 8 && p.parallel.tensor == 8 && p.recompute == RECOMPUTE_FULL && p.recompute_interval == 1);
    plan_free(&p);
    reads("MODULE=llama3 CONFIG=llama3_405b ./run_train.sh", "llama-3.1-405b", "64x8xh100");
    assert_true(p.seq == 8192 && p.micro_batch == 2 && p.parallel.tensor == 8 && p.parallel.async_tensor && p.recompute == RECOMPUTE_FULL);
    assert_true(p.kernels == KERNELS_TORCH_COMPILE && p.float8.recipe == FLOAT8_TENSORWISE && p.fsdp.float8_all_gather);
    plan_free(&p);
    reads("./run_train.sh --config llama3_70b --training.local_batch_size 2 --parallelism.tensor_parallel_degree=4", "llama-3.1-70b", "32x8xh100");
    assert_true(p.seq == 8192 && p.micro_batch == 2 && p.parallel.tensor == 4);
    plan_free(&p);
    refuses("CONFIG=llama3_71b ./run_train.sh", "did you mean llama3_70b?");
    /* by torchtitan's own reasons, not by transformers' */
    refuses_of("gpt-oss-20b", "MODULE=gpt_oss CONFIG=gpt_oss_20b ./run_train.sh", "flex attention with a sink a head");
    refuses_of("deepseek-v3", "MODULE=deepseek_v3 CONFIG=deepseek_v3_671b ./run_train.sh", "\"router.gate\": layers that float8 leaves out");
}

/* The whole registry, as torchtitan/models/NAME/config_registry.py has it at 00d1c0e4: batch, samples' length, checkpoints, tensor and pipeline degree, what is
 * compiled and how many layers' converters it has.  CompileConfig.enable is false of itself. */
static void the_registry_is_torchtitans(void **state)
{
    static const struct { const char *name; int batch, seq; const char *mode; int tensor, pipeline; const char *compiled; bool float8; } of[] = {
        { "llama3_debugmodel", 8, 2048, "selective", 1, 1, "", false }, { "llama3_debugmodel_float8", 8, 2048, "selective", 1, 1, "", true },
        { "llama3_8b", 1, 8192, "selective", 1, 1, "", false }, { "llama3_70b", 8, 8192, "full", 8, 1, "", false },
        { "llama3_405b", 2, 8192, "full", 8, 1, "all", true },
        { "qwen3_debugmodel", 8, 2048, "selective", 1, 1, "", false }, { "qwen3_debugmodel_param_groups", 8, 2048, "selective", 1, 1, "", false },
        { "qwen3_0_6b", 4, 4096, "selective", 1, 1, "", false }, { "qwen3_1_7b", 4, 4096, "selective", 1, 1, "", false },
        { "qwen3_14b", 4, 4096, "full", 1, 1, "", false }, { "qwen3_32b", 2, 4096, "full", 1, 1, "", false },
        { "sft_qwen3_8b_math", 1, 2048, "selective", 1, 1, "", false },
        { "llama4_17bx16e", 8, 8192, "full", 8, 1, "", false }, { "llama4_17bx128e", 1, 8192, "full", 8, 4, "", false },
        { "deepseek_v3_671b", 4, 4096, "selective", 1, 1, "loss", true },
        { "gpt_oss_20b", 1, 8192, "full", 1, 1, "", false }, { "gpt_oss_120b", 1, 8192, "full", 1, 1, "", false },
    };

    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        json_t *config = json_pack("{ss}", "config", of[i].name), *whole = titan_registry(config, "t");
        const char *mode = NULL, *component = "";
        int batch = 0, seq = 0, tensor = 1, pipeline = 1, enable = 0;
        assert_int_equal(json_unpack(whole, "{s{si si} s{ss} s?{s?i s?i} s?{sb s?[s]} s?{}}", "training", "local_batch_size", &batch, "seq_len", &seq,
                                     "activation_checkpoint", "mode", &mode, "parallelism", "tensor_parallel_degree", &tensor, "pipeline_parallel_degree", &pipeline,
                                     "compile", "enable", &enable, "components", &component, "float8"), 0);
        const char *compiled = !enable ? "" : *component ? component : "all";
        if (batch != of[i].batch || seq != of[i].seq || strcmp(mode, of[i].mode) || tensor != of[i].tensor || pipeline != of[i].pipeline ||
            strcmp(compiled, of[i].compiled) || (json_object_get(whole, "float8") != NULL) != of[i].float8)
            fail_msg("%s", json_dumps(whole, 0));
        json_decref(config);
        json_decref(whole);
    }
}

/* compile.components: the model's blocks, the loss, or both (all where it is left out). */
static void components_say_what_is_compiled(void **state)
{
    static const struct { const char *components; int kernels; bool loss; } of[] = {
        { "", KERNELS_TORCH_COMPILE, true }, { "components = [\"model\", \"loss\"]\n", KERNELS_TORCH_COMPILE, true },
        { "components = [\"model\"]\n", KERNELS_TORCH_COMPILE, false }, { "components = [\"loss\"]\n", KERNELS_TORCH_SDPA, true },
    };
    char text[256];

    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        snprintf(text, sizeof text, "[training]\nlocal_batch_size = 1\nseq_len = 4096\n[compile]\nenable = true\n%s", of[i].components);
        reads(text, "llama-3.1-8b", "8xh100");
        assert_int_equal(p.kernels, of[i].kernels);
        assert_int_equal(p.loss == LOSS_COMPILED, of[i].loss);
        plan_free(&p);
    }
}

/* Two passes of 4096 tokens, 40 heads of 128 elements and 32 layers, 16 bytes each: 21.5 GB, 6.41 ms at 3.35 TB/s; a half of it with two tensor-parallel
 * ranks. */
static void the_rotation_that_is_not_fused_is_told(void **state)
{
    static const struct { const char *more, *says; } of[] = {
        { "[compile]\nenable = true\n", "21.5 GB of memory traffic a step beside the plan's, 6.41 ms" },
        { "[compile]\nenable = true\n[parallelism]\ntensor_parallel_degree = 2\n", "10.7 GB of memory traffic" },
        { "", NULL }, { "[compile]\nenable = true\ncomponents = [\"loss\"]\n", NULL },
    };

    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        char text[256];
        snprintf(text, sizeof text, "[training]\nlocal_batch_size = 1\nseq_len = 4096\n[activation_checkpoint]\nmode = \"none\"\n%s", of[i].more);
        struct notes n = notes_of(text);
        assert_true(of[i].says ? noted(&n, of[i].says) : !noted(&n, "complex numbers"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(components_say_what_is_compiled), cmocka_unit_test(a_tied_table_was_in_two_units), cmocka_unit_test(optimizers_were_fused_by_a_flag),
        cmocka_unit_test(the_rotation_that_is_not_fused_is_told),
        cmocka_unit_test(a_file_is_read_as_torchtitan_does),
        cmocka_unit_test(a_config_is_known_by_its_name),
        cmocka_unit_test(the_registry_is_torchtitans),
        cmocka_unit_test(what_is_left_out_is_its_default),
        cmocka_unit_test(a_pipelines_micro_steps_are_cut_from_the_local_batch),
        cmocka_unit_test(accumulation_follows_from_the_global_batch),
        cmocka_unit_test(keys_are_found_where_they_were),
        cmocka_unit_test(float8_layers_are_read),
        cmocka_unit_test(float8_is_read_however_it_is_written),
        cmocka_unit_test(what_no_plan_has_is_refused_by_name),
        cmocka_unit_test(bad_text_is_reported_with_its_place),
        cmocka_unit_test(what_is_not_read_is_listed_in_every_section),
        cmocka_unit_test(a_command_is_read_to_its_end),
        cmocka_unit_test(a_script_is_followed),
        cmocka_unit_test(the_file_of_a_command_is_read_below_its_options),
        cmocka_unit_test(what_is_exported_is_imported_again),
        cmocka_unit_test(its_models_have_names_here),
    };
    return cmocka_run_group_tests_name("torchtitan's configs", tests, NULL, NULL);
}
