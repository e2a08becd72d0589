/* dpxplan.c -- what would this plan cost, before a GPU is booked? */
#include <stdbool.h>
#include <stdio.h>

#include "base/fail.h"
#include "base/opts.h"
#include "sim/plan/commands.h"

int print_json(json_t *doc, int status)
{
    int rc = json_dumpf(doc, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(17));

    json_decref(doc);
    if (rc == 0 && putchar('\n') != EOF && fflush(stdout) == 0)
        return status;
    fail("cannot write to standard output");
    return EXIT_FAILED;
}

int main(int argc, char **argv)
{
    const struct command commands[] = {
        { "search",     "the fastest plan among those that fit",                            cmd_search },
        { "init",       "a first plan with a comment on each key, from a few answers",  cmd_init },
        { "eval",       "every figure of one plan",                                     cmd_eval },
        { "sweep",      "a plan or a search at many points: scaling, sequence lengths, networks, GPUs", cmd_sweep },
        { "explain",    "a plan's schedule, its memory over time, and why its peak is where it is",
                                                                                        cmd_explain },
        { "limits",     "per strategy: the largest model, the largest micro-batch, the fewest GPUs",
                                                                                        cmd_limits },
        { "estimators", "DeepSpeed's own memory estimate, and what it leaves out",      cmd_estimators },
        { "import",     "a plan from a DeepSpeed or accelerate config",                 cmd_import },
        { "export",     "a plan as the config of a framework",                          cmd_export },
        { "collectives", "the algorithms of one collective side by side",               cmd_collectives },
        { "list",       "what dpx knows: models, clusters, gpus, strategies, keys of plans", cmd_list },
        { 0 }
    };

    static const struct opts_section keys = {
        "KEYS OF PLAN.JSON", "What is left out takes its default; dpx_plan, model, cluster and strategy must be there.",
        plan_key_entry,
    };
    opts_manual_section(&keys);
    int rc = command_run("dpxplan", "plans how to spread the training of a model over GPUs",
                         commands, argc, argv);
    /* A full disk shows only now; an answer that nobody can read is a failure. */
    bool lost = ferror(stdout) != 0;
    if ((fflush(stdout) != 0 || lost) && (rc == EXIT_DONE || rc == EXIT_NO)) {
        fail("cannot write to standard output");
        return EXIT_FAILED;
    }
    return rc;
}
