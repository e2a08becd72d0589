/* cmd_convert.c -- dpxplan import and export: plans from and to the configs of
 * the frameworks people run. */
#include <stdio.h>
#include <stdlib.h>

#include "base/fail.h"
#include "base/notes.h"
#include "base/opts.h"
#include "base/output.h"
#include "base/size.h"
#include "model/memory/evaluate.h"
#include "sim/plan/answer_words.h"
#include "sim/plan/commands.h"
#include "sim/plan/convert.h"
#include "sim/plan/import_phases.h"

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

/* Whether it fits is what people import for; what cannot be evaluated `dpxplan eval` explains. */
static void say_fits(const struct plan *p)
{
    const char *bound = p->kernels == KERNELS_TORCH_EAGER ? "; an upper bound where another kernel runs that keeps no scores of attention" : "";
    struct evaluation e;
    char ignored[512];

    struct fail_sink before = fail_divert(ignored, sizeof ignored);
    int rc = evaluate(p, &e);
    fail_restore(before);
    if (rc < 0)
        return;
    answer_lack(p, &e, ignored, sizeof ignored);
    if (e.m.fits)
        notes_say("    fits      %s: %s%s of %s usable on a GPU%s%s", e.verdict == VERDICT_TIGHT ? "tightly" : "yes",
                  e.reserved.known ? "reserves " : "", size_text(evaluation_taken(&e.m, &e.reserved)).s, size_text(e.m.available).s,
                  e.verdict == VERDICT_TIGHT ? ", so less than usual stays free, or the allocator runs full" : "", e.verdict == VERDICT_TIGHT ? bound : "");
    else
        notes_say("    fits      no: %s%s", ignored, bound);
    if (answer_release(p, &e))
        notes_say("    note      %s", answer_release(p, &e));
    evaluation_free(&e);
}

static int print_answer(const struct plan *p)
{
    char label[KNOB_LABEL];

    knob_label(p, label, sizeof label);
    return dpxplan_print_json(json_pack("{s:i, s:o, s:s}", "dpx", 1, "plan", plan_to_json(p), "label", label), EXIT_DONE);
}

int cmd_import(int argc, char **argv)
{
    struct import_args a = { .precision = -1, .recompute = -1, .summary = true };
    const char *out = NULL;
    bool json = false;
    struct plan p;
    const struct opt opts[] = {
        IMPORT_OPTS(a),
        { "output", "where to write plan.json (standard output)", .str = &out, .letter = 'o', .value = "FILE" },
        { "json", "print one JSON document: the plan and its label", .flag = &json },
        { 0 }
    };
    int rc = opts_parse("dpxplan import", "A plan from what you have: a recipe, a config or a command of a training framework.", opts, argc, argv);

    if (rc != OPTS_OK)
        return rc < 0 ? EXIT_MISUSE : EXIT_DONE;
    if (!json && import_is_of_phases(&a))
        return import_phases(&a, out);
    if ((rc = convert_import(&a, &p)) != EXIT_DONE)
        return rc;
    if (json && out) {
        fail("import: --json and --output: one of them");
        rc = EXIT_MISUSE;
    } else if (json) {
        rc = print_answer(&p);
    }
    if (json) {
        plan_free(&p);
        return rc;
    }
    say_fits(&p);
    rc = convert_write_plan(&p, out) < 0 ? EXIT_FAILED : EXIT_DONE;
    if (out && rc == EXIT_DONE)
        notes_say("dpx: wrote %s: dpxplan eval %s", out, out);
    plan_free(&p);
    return rc;
}

int cmd_export(int argc, char **argv)
{
    struct export_args a = { .to = NULL };
    bool json = false;
    const struct opt opts[] = { EXPORT_OPTS(a), { "json", "print one JSON document, with the text in it", .flag = &json }, { 0 } };
    char *text;
    int rc = opts_parse("dpxplan export", "A plan as the config of a framework, on standard output.", opts, argc, argv);

    if (rc != OPTS_OK)
        return rc < 0 ? EXIT_MISUSE : EXIT_DONE;
    if ((rc = convert_export(&a, &text)) != EXIT_DONE)
        return rc;
    if (json)
        rc = dpxplan_print_json(json_pack("{s:i, s:s, s:s}", "dpx", 1, "to", a.to, "text", text), rc);
    else if (fputs(text, stdout) == EOF || fflush(stdout) != 0) {
        fail("cannot write to standard output");
        rc = EXIT_FAILED;
    }
    free(text);
    return rc;
}
