/* A key that a form's function reads is read whatever else the file says, or the file is told that it is not: a value of the golden files that becomes nonsense
 * is refused, or named in a note: another plan of it without a word is nonsense, too.  A condition around the read must not silence it. */
#include "tests/model/form_files.h"

#include "model/exchange/megatron_read.h"
#include "model/exchange/titan_import.h"
#include "model/exchange/titan_keys.h"
#include "model/form/form_rows.h"

/* Is the key without a meaning where it stands, or any text one of its own? */
static bool is_idle(const struct form_file *f, const char *path, const json_t *v)
{
    static const char *const any[] = {
        "use_gradient_checkpointing", "gradient_checkpointing", "model.gradient_checkpointing_enable", "ds.adam_offload", "bf16",     /* any text is true */
        "devices", "trainer.nnodes", "trainer.n_gpus_per_node",                                     /* the cluster says how many, and variables pass */
        "actor_rollout_ref.model.enable_gradient_checkpointing",                                    /* not read by an actor by Megatron-LM */
        "actor_rollout_ref.actor.entropy_coeff",                                                    /* Triton's kernel has the entropy without it */
        "MODEL_ARGS.--use-tp-pp-dp-mapping", "MODEL_ARGS.--no-rope-fusion", "MODEL_ARGS.--moe-router-pre-softmax",      /* on one node; of latent attention; sigmoid's */
    };
    const json_t *stages = form_value(f->doc, "distributed.pp_size"), *tensor = form_value(f->doc, "distributed.tp_size");
    bool idle = json_is_string(v) && strchr(json_string_value(v), '$');

    const char *mode = json_string_value(form_value(f->doc, "activation_checkpoint.mode"));

    if (strstr(path, "float8."))                        /* without a converter of this name it does nothing */
        return !json_array_size(form_value(f->doc, "model.converters"));
    if (!strcmp(path, "activation_checkpoint.selective_ac_option"))
        return mode && strcmp(mode, "selective") != 0;
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

/* "--num-layers" as "num_layers". */
static const char *name_of(const char *key, char name[100])
{
    size_t n = 0;

    for (key += strspn(key, "-"); *key && n < 99; key++)
        name[n++] = *key == '-' ? '_' : *key;
    name[n] = '\0';
    return name;
}

/* Does the form's function read the key?  Megatron-LM's and torchtitan's have no table of rows. */
static bool reads(const struct form *form, const char *path)
{
    const struct form_row *row = form->rows ? form_row_of(form->rows, form->nrows, path) : NULL;
    const char *dot = strrchr(path, '.');
    char name[100];

    if (form == &form_titan)
        return titan_keys_reads(path);
    name_of(dot ? dot + 1 : path, name);
    if (form == &form_megatron)
        return megatron_knows(name) && !megatron_is_beside(name);
    return row && row->says == ROW_READ;
}

static int tried, silent;

static void replace_words(const struct row *r, const struct form *form, struct form_file *f, json_t *in, const char *path)
{
    const char *key;
    json_t *v;
    void *next;

    json_object_foreach_safe(in, next, key, v) {
        char at[256];
        snprintf(at, sizeof at, "%.140s%s%.100s", path, *path ? "." : "", key);
        replace_words(r, form, f, v, at);
        bool given = form == &form_titan && strcmp(r->model, "-") != 0 && !strncmp(at, "model.", 6);    /* --model goes before it */
        if (json_is_object(v) || json_is_array(v) || json_is_null(v) || !reads(form, at) || is_idle(f, at, v) || given)
            continue;
        json_incref(v);
        json_object_set_new(in, key, json_string("zzz.zzz"));
        json_t *got = outcome(r, form, f);
        if (!json_is_null(got) && !is_named(got, form == &form_megatron ? name_of(key, at) : at))
            silent += fail("%s: \"zzz.zzz\" is taken for %s without a word", r->file, at) != 0;
        json_decref(got);
        json_object_set_new(in, key, v);
        tried++;
    }
}

/* The same of a command's options: "--name value", "--name=value". */
static void replace_values(const struct row *r, const struct form *form, struct form_file *f)
{
    for (size_t i = 0; i < json_array_size(f->words); i++) {
        const char *word = json_string_value(json_array_get(f->words, i)), *next = json_string_value(json_array_get(f->words, i + 1));
        const char *equals = word ? strchr(word, '=') : NULL;
        char option[100], name[100];
        if (!word || strncmp(word, "--", 2) || (!equals && (!next || !strncmp(next, "--", 2))))
            continue;
        snprintf(option, sizeof option, "%.*s", equals ? (int)(equals - word) : 98, word);
        if (!reads(form, name_of(option, name)))
            continue;
        size_t at = equals ? i : i + 1;
        json_t *before = json_incref(json_array_get(f->words, at));
        json_array_set_new(f->words, at, equals ? json_sprintf("%s=zzz.zzz", option) : json_string("zzz.zzz"));
        json_t *got = outcome(r, form, f);
        if (!json_is_null(got) && !is_named(got, name))
            silent += fail("%s: \"zzz.zzz\" is taken for %s without a word", r->file, option) != 0;
        json_decref(got);
        json_array_set_new(f->words, at, before);
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
        if (strncmp(rows[i].wanted, "refused=", 8) != 0 && (form->rows || form == &form_titan || form == &form_megatron)) {
            if (form == &form_titan && f.kind == FORM_COMMAND) {         /* its options as the sections that they are */
                f.doc = titan_read_text(f.text, f.path);
                f.kind = FORM_TOML;
            }
            bool command = f.words && form == &form_megatron;
            if (f.doc && !command)
                replace_words(&rows[i], form, &f, f.doc, "");
            if (command)
                replace_values(&rows[i], form, &f);
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
