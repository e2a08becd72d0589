/* A key that a form's function reads is read whatever else the file says, or the file is told that it is not: a value of the golden files that becomes nonsense
 * is refused, changes the plan, or is named in a note.  A condition around the read must not silence it. */
#include "tests/model/form_files.h"

#include "model/form/form_rows.h"

/* Is the key without a meaning where it stands, or any text one of its own? */
static bool is_idle(const struct form_file *f, const char *path, const json_t *v)
{
    static const char *const any[] = {
        "use_gradient_checkpointing", "gradient_checkpointing", "model.gradient_checkpointing_enable", "ds.adam_offload", "bf16",     /* any text is true */
        "devices", "trainer.nnodes", "trainer.n_gpus_per_node",                                     /* the cluster says how many, and variables pass */
        "actor_rollout_ref.model.enable_gradient_checkpointing",                                    /* not read by an actor by Megatron-LM */
        "actor_rollout_ref.actor.entropy_coeff",                                                    /* Triton's kernel has the entropy without it */
    };
    const json_t *stages = form_value(f->doc, "distributed.pp_size"), *tensor = form_value(f->doc, "distributed.tp_size");
    bool idle = json_is_string(v) && strchr(json_string_value(v), '$');

    if (!strncmp(path, "distributed.pipeline.", 21))
        return !stages || json_integer_value(stages) <= 1;
    if (!strcmp(path, "distributed.sequence_parallel"))
        return !tensor || json_integer_value(tensor) <= 1;
    for (size_t i = 0; i < sizeof any / sizeof *any; i++)
        idle = idle || !strcmp(path, any[i]);
    return idle;
}

/* The plan and what is said beside it; null: refused. */
static json_t *outcome(const struct row *r, const struct form *form, struct form_file *f)
{
    struct notes notes = { 0 };
    json_t *said = json_array(), *before = notes_divert(said), *out;
    struct plan p;
    char why[1024];
    int rc = read_as(form, f, r, &p, &notes, why);

    notes_divert(before);
    for (int i = 0; i < notes.n && i < (int)(sizeof notes.text / sizeof *notes.text); i++)
        json_array_append_new(said, json_string(notes.text[i]));
    out = rc < 0 ? json_null() : json_pack("{so sO}", "plan", plan_to_json(&p), "said", said);
    json_decref(said);
    plan_free(&p);
    return out;
}

static bool is_named(const json_t *outcome, const char *path)
{
    const json_t *line;
    size_t i;

    json_array_foreach(json_object_get(outcome, "said"), i, line)
        if (strstr(json_string_value(line), path))
            return true;
    return false;
}

static int tried, silent;

static void replace_words(const struct row *r, const struct form *form, struct form_file *f, json_t *in, const char *path, const json_t *usual)
{
    const char *key;
    json_t *v;
    void *next;

    json_object_foreach_safe(in, next, key, v) {
        char at[256];
        snprintf(at, sizeof at, "%.140s%s%.100s", path, *path ? "." : "", key);
        replace_words(r, form, f, v, at, usual);
        const struct form_row *row = form_row_of(form->rows, form->nrows, at);
        if (json_is_object(v) || json_is_array(v) || json_is_null(v) || !row || row->says != ROW_READ || is_idle(f, at, v))
            continue;
        json_incref(v);
        json_object_set_new(in, key, json_string("zzz.zzz"));
        json_t *got = outcome(r, form, f);
        if (json_equal(got, usual) && !is_named(usual, at))
            silent += fail("%s: \"zzz.zzz\" is taken for %s without a word", r->file, at) != 0;
        json_decref(got);
        json_object_set_new(in, key, v);
        tried++;
    }
}

static void a_word_of_nonsense_is_never_taken(void **state)
{
    (void)state;
    for (int i = 0; i < nrows; i++) {
        struct form_file f;
        open_row(&rows[i], &f);
        const struct form *form = form_of(&f);
        if (strncmp(rows[i].wanted, "refused=", 8) != 0 && form->rows) {
            json_t *usual = outcome(&rows[i], form, &f);
            replace_words(&rows[i], form, &f, f.doc, "", usual);
            json_decref(usual);
        }
        form_close(&f);
    }
    assert_true(tried > 1000);
    assert_int_equal(silent, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_word_of_nonsense_is_never_taken) };

    read_rows();
    return cmocka_run_group_tests_name("model/form words", tests, NULL, NULL);
}
