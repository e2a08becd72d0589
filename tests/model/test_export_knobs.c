/* test_export_knobs.c -- no export leaves a value out silently: what changes a plan changes the file, or is refused by name. */
#include "tests/model/knob_values.h"

#include "base/notes.h"
#include "model/exchange/export.h"

static const char *target;


static json_t *notes;       /* of the last export */

/* NULL: refused. */
static char *exported(const struct plan *p)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);

    json_array_clear(notes);
    fail_capture(said, sizeof said);
    int rc = export_plan(p, target, f);
    fail_capture(NULL, 0);
    fclose(f);
    if (rc < 0) {
        free(text);
        return NULL;
    }
    return text;
}

/* Has the target any plan of the cell? */
static bool has_cell(int s, int d)
{
    struct plan p;
    char *text = NULL;

    for (int v = 0; v < 4 && !text; v++)
        if (dialect_has((enum dialect)d, (enum strategy)s) && plan_in(&p, s, d, v)) {
            p.reduce_dtype = p.precision;
            text = exported(&p);
            if (!text && p.precision != DT_FP32) {
                p.reduce_dtype = DT_FP32;
                text = exported(&p);
            }
        }
    free(text);
    return text != NULL;
}

/* Not of the training: how its tokens spread is a property of the data, and DeepSpeed's config says samples, not their length. */
static bool of_the_data(const struct knob *k)
{
    return !strcmp(k->name, "expert_imbalance") || (!strcmp(target, "deepspeed") && !strcmp(k->name, "seq"));
}

/* The same to PyTorch: units reshard and the root does not unless told otherwise; one micro-step is the last one. */
static bool says_nothing(const struct plan *p, const struct knob *k)
{
    return knob_idle(p, k) || (k->type == KNOB_RESHARD && knob_get(p, k) >= 0 && knob_get(p, k) <= 1) ||
           (k->offset == offsetof(struct plan, sync_every_micro_step) && p->accumulation == 1);
}

/* Does a note of the export name it, as a field that no option says? */
static bool is_noted(const struct knob *k)
{
    for (size_t i = 0; i < json_array_size(notes); i++)
        if (strstr(json_string_value(json_array_get(notes, i)), k->name))
            return true;
    return false;
}

static int compared, silent;

/* Exports the plan with this value and with the default; where both can be said, the two texts must differ. */
static bool shows(const struct plan *p, const struct knob *k)
{
    struct plan plain = *p;
    char *with = exported(p), *without;
    bool noted = is_noted(k);

    if (!with)
        return strstr(said, k->name) != NULL;
    knob_set(&plain, k, knob_default(p, k));
    without = same_value(p, &plain, k) || !accepted(&plain) ? NULL : exported(&plain);
    noted = noted || is_noted(k);
    if (without && !strcmp(with, without) && !noted && !says_nothing(p, k)) {
        print_message("%s: %s/%s: \"%s.%s\" %g is not said, default %g\n", target, strategy_name(p->strategy), dialect_name(p->dialect), k->object, k->name,
                      knob_get(p, k), knob_get(&plain, k));
        silent++;
    }
    compared += without != NULL;
    bool yes = without != NULL;
    free(with);
    free(without);
    return yes;
}

static void every_value_is_said_or_refused(void **state)
{
    const struct knob *k;

    (void)state;
    for (int t = 0; (target = export_targets[t]); t++)
        for (int s = 0; s < NSTRATEGY; s++)
            for (int d = 0; d < NDIALECT; d++)
                for (int i = 0; has_cell(s, d) && (k = knob_at(i)); i++)
                    if ((k->cells & CELL(s, d)) && !k->required && k->type != KNOB_TEXT && k->type != KNOB_LIST && k->type != KNOB_FIXED &&
                        !of_the_data(k))
                        in_cell(k, s, d, shows);
    assert_int_equal(silent, 0);
    if (compared < 500)
        fail_msg("only %d values were compared", compared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_value_is_said_or_refused),
    };
    if (!knob_models_load())
        return 1;
    notes = json_array();
    notes_divert(notes);
    int rc = cmocka_run_group_tests_name("model/export_knobs", tests, NULL, NULL);
    notes_divert(NULL);
    json_decref(notes);
    model_free(&llama);
    model_free(&mixtral);
    model_free(&latent);
    model_free(&neox);
    return rc;
}
