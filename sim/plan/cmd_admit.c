/* cmd_admit.c -- dpxplan admit: for a scheduler that asks before it starts a job. */
#include <stdio.h>

#include "base/opts.h"
#include "base/size.h"
#include "sim/plan/admit.h"
#include "sim/plan/commands.h"

static void print(const json_t *doc)
{
    const json_t *asks = json_object_get(doc, "asks"), *least = json_object_get(doc, "least");
    const char *why = json_string_value(json_object_get(doc, "why_not"));

    printf("%s: %s of %s usable on each of %lld x %lld %s\n", json_string_value(json_object_get(doc, "verdict")),
           size_text(json_integer_value(json_object_get(doc, "taken_bytes"))).s, size_text(json_integer_value(json_object_get(doc, "usable_bytes"))).s,
           (long long)json_integer_value(json_object_get(asks, "nodes")), (long long)json_integer_value(json_object_get(asks, "gpus_per_node")),
           json_string_value(json_object_get(asks, "gpu")));
    if (why)
        printf("  %s\n", why);
    if (json_is_object(least))
        printf("  the least that holds it: %lld x %lld\n", (long long)json_integer_value(json_object_get(least, "nodes")),
               (long long)json_integer_value(json_object_get(least, "gpus_per_node")));
    else
        printf("  more GPUs of this kind do not hold it\n");
}

int cmd_admit(int argc, char **argv)
{
    struct admit_args a = { .file = NULL };
    bool json = false;
    const struct opt opts[] = {
        OPTS_EXAMPLE("dpxplan admit demo/job.sbatch --recipe demo/qwen3-sft.yaml"),
        { "JOB", "a Kubeflow TrainJob (YAML) or an sbatch script", .str = &a.file, .positional = true, .required = true },
        { "recipe", "the recipe or config that the job runs; left out: the command in the job", .str = &a.recipe, .value = "FILE", .often = true },
        { "gpu", "the type of GPU, where the job does not say it", .str = &a.gpu, .value = "NAME", .often = true },
        { "model", "the model, where the recipe does not name it", .str = &a.model },
        { "seq", "tokens per sample, likewise", .length = &a.seq, .min = 1 },
        { "json", "print one JSON document", .flag = &json },
        { 0 }
    };
    int rc = opts_parse("dpxplan admit", "Would a job fit that waits in a queue?  Exit status 0: it fits, perhaps tightly; 3: it does not, and what would.", opts,
                        argc, argv);
    json_t *doc = NULL;

    if (rc != OPTS_OK)
        return rc < 0 ? EXIT_MISUSE : EXIT_DONE;
    rc = admit_ask(&a, &doc);
    if (!doc)
        return rc;
    if (json)
        return dpxplan_print_json(doc, rc);
    print(doc);
    json_decref(doc);
    return rc;
}
