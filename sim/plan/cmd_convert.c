/* cmd_convert.c -- dpxplan import and export: plans from and to the configs of
 * the frameworks people run. */
#include <stdio.h>

#include "base/fail.h"
#include "base/files.h"
#include "base/opts.h"
#include "base/output.h"
#include "model/exchange/accelerate.h"
#include "model/exchange/ds_config.h"
#include "model/exchange/export.h"
#include "model/plan/knob.h"
#include "sim/plan/commands.h"
#include "sim/plan/plan_source.h"
#include "sim/plan/search_args.h"

int convert_write_plan(const struct plan *p, const char *path)
{
    json_t *j = plan_to_json(p);
    struct output o;
    int rc = -1;

    if (!path)
        return dpxplan_print_json(j, 0) == 0 ? 0 : -1;
    if (output_open(&o, path) == 0) {
        json_dumpf(j, o.f, JSON_INDENT(2) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(17));
        rc = output_close(&o);
    }
    json_decref(j);
    return rc;
}

/* *said: the config itself says how many micro-steps a step has. */
static int import_deepspeed(const char *path, struct plan *p, bool *said)
{
    json_t *j = files_read_json_file(path);
    int rc;

    if (!j)
        return -1;
    *said = json_is_integer(json_object_get(j, "gradient_accumulation_steps")) ||
            json_is_integer(json_object_get(j, "train_batch_size"));
    rc = ds_config_import(j, path, p);
    json_decref(j);
    return rc;
}

/* What a step's samples say of the micro-steps, before the config is read: what it says itself must agree. */
static int by_global_batch(int64_t batch, struct plan *p)
{
    int64_t each = p->cluster.world_size * (p->micro_batch ? p->micro_batch : 1);

    if (!batch)
        return 0;
    if (p->accumulation)
        return fail("import: --global-batch and --accumulation say the same: give one of them");
    if (batch % each)
        return fail("import: --global-batch %lld is not a multiple of %lld ranks%s", (long long)batch,
                    (long long)p->cluster.world_size, p->micro_batch ? " x the micro-batch" : "");
    if (p->micro_batch)
        p->accumulation = batch / each;
    return 0;
}

/* What the file left out. */
static int complete(struct plan *p, int64_t batch, bool said, int recompute)
{
    int64_t each = p->cluster.world_size * p->micro_batch;

    if (recompute >= 0) {
        p->recompute = (enum recompute)recompute;
        p->recompute_interval = 1;
    }
    if (batch && plan_global_batch(p) != batch && !said && batch % each == 0)
        p->accumulation = batch / each;
    if (batch && plan_global_batch(p) != batch)
        return fail("import: --global-batch %lld, but the config makes it %lld (micro-batch %lld x accumulation %lld x "
                    "%lld ranks)", (long long)batch, (long long)plan_global_batch(p), (long long)p->micro_batch,
                    (long long)p->accumulation, (long long)p->cluster.world_size);
    return plan_check(p, "import");
}

int cmd_import(int argc, char **argv)
{
    const char *ds = NULL, *accelerate = NULL, *model = NULL, *cluster = NULL, *out = NULL;
    int precision = -1, recompute = -1, rc;
    int64_t global_batch = 0;
    bool said = false;
    struct plan p = { 0 };
    const struct opt opts[] = {
        { "ds-config", "a DeepSpeed config", .str = &ds, .value = "FILE" },
        { "accelerate", "an accelerate YAML config", .str = &accelerate, .value = "FILE" },
        { "model", "a built-in name, a config.json or its folder", .str = &model, .words = search_models(), .required = true },
        { "cluster", "a cluster file, a built-in name, 4x8xh100", .str = &cluster, .words = search_clusters(), .required = true },
        { "seq", "tokens per sample", .length = &p.seq, .min = 1, .required = true },
        { "micro-batch", "samples per rank, where the config says \"auto\" or nothing", .i = &p.micro_batch, .min = 1 },
        { "accumulation", "micro-steps per optimizer step, likewise", .i = &p.accumulation, .min = 1 },
        { "global-batch", "samples per optimizer step, in the place of --accumulation", .i = &global_batch, .min = 1 },
        { "recompute", "activation recompute, which these configs leave to the model", .word = &recompute, .words = knob_words("recompute") },
        { "precision", "fp32, bf16 or fp16, likewise", .word = &precision, .words = knob_words("precision") },
        { "output", "where to write plan.json (standard output)", .str = &out, .letter = 'o', .value = "FILE" },
        { 0 }
    };

    rc = opts_parse("dpxplan import", "A plan from a DeepSpeed or accelerate config.", opts, argc, argv);
    if (rc != OPTS_OK)
        return rc < 0 ? EXIT_MISUSE : EXIT_DONE;
    if (!ds == !accelerate) {
        fail("import: give one of --ds-config and --accelerate");
        return EXIT_MISUSE;
    }
    if (precision >= 0)
        p.precision = (enum dtype)precision;
    if (model_load(model, &p.model) < 0)
        return EXIT_MISUSE;
    rc = EXIT_MISUSE;
    if (cluster_load(cluster, &p.cluster) < 0)
        goto out;
    if (by_global_batch(global_batch, &p) < 0 ||
        (ds ? import_deepspeed(ds, &p, &said) : accelerate_import_file(accelerate, &p)) < 0 ||
        complete(&p, global_batch, said, recompute) < 0)
        goto out;
    rc = convert_write_plan(&p, out) < 0 ? EXIT_FAILED : EXIT_DONE;
out:
    plan_free(&p);
    return rc;
}

int cmd_export(int argc, char **argv)
{
    const char *to = NULL, *path = NULL;
    const struct opt opts[] = {
        { "PLAN.json", "the plan", .str = &path, .positional = true, .required = true },
        { "to", "deepspeed, accelerate, torchtitan or fsdp", .str = &to, .words = export_targets, .value = "FRAMEWORK", .required = true },
        { 0 }
    };
    struct plan p;
    int rc = opts_parse("dpxplan export", "A plan as the config of a framework, on standard output.", opts, argc, argv);

    if (rc != OPTS_OK)
        return rc < 0 ? EXIT_MISUSE : EXIT_DONE;
    if (plan_source_read(path, NULL, &p) < 0)
        return EXIT_MISUSE;
    rc = export_plan(&p, to, stdout) < 0 ? EXIT_MISUSE : EXIT_DONE;
    plan_free(&p);
    if (rc == EXIT_DONE && fflush(stdout) != 0) {
        fail("cannot write to standard output");
        rc = EXIT_FAILED;
    }
    return rc;
}
