/* list_parallel.c -- see list_parallel.h.  Nothing is written twice: a plan of Llama 3.1 8B is made for every feature in every
 * strategy and dialect, of Mixtral for those of experts, and what plans refuse is not there. */
#include "sim/plan/list_parallel.h"

#include <stdbool.h>
#include <stdio.h>

#include "base/fail.h"
#include "base/notes.h"
#include "model/plan/knob.h"

/* deepspeed: its words, where it has it; experts: of a mixture. */
static const struct { const char *feature, *keys, *deepspeed; bool experts; } features[] = {
    { "tensor", "\"tensor\": 2, \"sequence\": false", "\"tensor\": 2", false },
    { "tensor and sequence", "\"tensor\": 2, \"sequence\": true", NULL, false },
    { "asynchronous tensor", "\"tensor\": 2, \"async_tensor\": true", NULL, false },
    { "context, all-gather", "\"context\": 2, \"context_method\": \"all-gather\"", NULL, false },
    { "context, ring", "\"context\": 2, \"context_method\": \"ring\"", NULL, false },
    { "context, ulysses", "\"context\": 2, \"context_method\": \"ulysses\"", "\"context\": 2", false },
    { "pipeline, gpipe", "\"pipeline\": 2, \"pipeline_schedule\": \"gpipe\"", NULL, false },
    { "pipeline, 1f1b", "\"pipeline\": 2, \"pipeline_schedule\": \"1f1b\"", "\"pipeline\": 2", false },
    { "pipeline, interleaved", "\"pipeline\": 2, \"pipeline_schedule\": \"interleaved\"", NULL, false },
    { "pipeline, looped-bfs", "\"pipeline\": 2, \"pipeline_schedule\": \"looped-bfs\"", NULL, false },
    { "pipeline, zb1p", "\"pipeline\": 2, \"pipeline_schedule\": \"zb1p\"", NULL, false },
    { "pipeline, zbv", "\"pipeline\": 2, \"pipeline_schedule\": \"zbv\"", NULL, false },
    { "pipeline, dualpipev", "\"pipeline\": 2, \"pipeline_schedule\": \"dualpipev\"", NULL, false },
    { "all three", "\"tensor\": 2, \"context\": 2, \"pipeline\": 2", NULL, false },
    { "expert", "\"expert\": 2", "\"expert\": 2", true },
    { "expert, and tensor", "\"expert\": 2, \"tensor\": 2, \"sequence\": true", NULL, true },
};

/* With kernels and precision that some plan of the cell has. */
static bool can_have(const char *model, const char *keys, enum strategy s, enum dialect d)
{
    static const char *const kernels[] = { "torch-sdpa", "torch-compile", "dpx", "te" }, *const precision[] = { "bf16", "fp32" };
    char text[512], why[512];
    bool can = false;

    for (int i = 0; i < 8 && !can; i++) {
        struct plan p;
        snprintf(text, sizeof text, "{ \"dpx_plan\": 1, \"model\": \"%s\", \"cluster\": \"2x8xh100\", \"seq\": 4096, \"accumulation\": 8, "
                 "\"strategy\": \"%s\", \"dialect\": \"%s\", \"precision\": \"%s\", \"kernels\": \"%s\", \"parallel\": { %s } }", model, strategy_name(s),
                 dialect_name(d), precision[i / 4], kernels[i % 4], keys);
        json_t *doc = json_loads(text, 0, NULL), *notes = json_array(), *before = notes_divert(notes);
        struct fail_sink said = fail_divert(why, sizeof why);
        can = plan_from_json(doc, "plan", &p) == 0;
        fail_restore(said);
        notes_divert(before);
        json_decref(notes);
        json_decref(doc);
        if (can)
            plan_free(&p);
    }
    return can;
}

int list_parallel(json_t *to)
{
    for (size_t i = 0; i < sizeof features / sizeof *features; i++) {
        const char *model = features[i].experts ? "mixtral-8x7b" : "llama-3.1-8b";
        json_t *cells = json_array();

        for (int s = 0; s < NSTRATEGY; s++)
            for (int d = 0; d < NDIALECT; d++) {
                const char *keys = d == DIALECT_DEEPSPEED ? features[i].deepspeed : features[i].keys;
                if (keys && dialect_has((enum dialect)d, (enum strategy)s) && can_have(model, keys, (enum strategy)s, (enum dialect)d))
                    json_array_append_new(cells, json_pack("{s:s, s:s}", "strategy", strategy_name((enum strategy)s), "dialect",
                                                           dialect_name((enum dialect)d)));
            }
        json_array_append_new(to, json_pack("{s:s, s:s, s:o}", "feature", features[i].feature, "keys", features[i].keys, "cells", cells));
    }
    return 0;
}
