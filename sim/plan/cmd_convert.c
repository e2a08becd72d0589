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

int write_plan(const struct plan *p, const char *path)
{
    json_t *j = plan_to_json(p);
    struct output o;
    int rc = -1;

    if (!path)
        return print_json(j, 0) == 0 ? 0 : -1;
    if (output_open(&o, path) == 0) {
        json_dumpf(j, o.f, JSON_INDENT(2) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(17));
        rc = output_close(&o);
    }
    json_decref(j);
    return rc;
}

static int import_deepspeed(const char *path, struct plan *p)
{
    json_t *j = json_read_file(path);
    int rc;

    if (!j)
        return -1;
    rc = ds_config_import(j, path, p);
    json_decref(j);
    return rc;
}

int cmd_import(int argc, char **argv)
{
    const char *ds = NULL, *accelerate = NULL, *model = NULL, *cluster = NULL, *out = NULL;
    int precision = -1, rc;
    struct plan p = { 0 };
    const struct opt opts[] = {
        { "ds-config", "a DeepSpeed config", .str = &ds, .value = "FILE" },
        { "accelerate", "an accelerate YAML config", .str = &accelerate, .value = "FILE" },
        { "model", "a built-in name, a config.json or its folder", .str = &model, .required = true },
        { "cluster", "a cluster file, a built-in name, 4x8xh100", .str = &cluster, .required = true },
        { "seq", "tokens per sample", .length = &p.seq, .min = 1, .required = true },
        { "micro-batch", "samples per rank, where the config says \"auto\" or nothing", .i = &p.micro_batch, .min = 1 },
        { "accumulation", "micro-steps per optimizer step, likewise", .i = &p.accumulation, .min = 1 },
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
    if ((ds ? import_deepspeed(ds, &p) : accelerate_import_file(accelerate, &p)) < 0)
        goto out;
    rc = write_plan(&p, out) < 0 ? EXIT_FAILED : EXIT_DONE;
out:
    plan_free(&p);
    return rc;
}

int cmd_export(int argc, char **argv)
{
    const char *to = NULL, *path = NULL;
    const struct opt opts[] = {
        { "PLAN.json", "the plan", .str = &path, .positional = true, .required = true },
        { "to", "deepspeed, accelerate, torchtitan or fsdp", .str = &to, .value = "FRAMEWORK", .required = true },
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
