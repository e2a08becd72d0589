/* A key of a config of NeMo-RL that is renamed to nonsense is told by its name, or the file is refused; and so is a value of nonsense of a key that is read. */
#include "tests/check.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "model/form/form.h"
#include "sim/plan/phases.h"
#include "sim/plan/phases_nemo.h"

#define FOLDER "tests/golden/nemo-rl/"

/* .response = files[i].response, .idle = files[i].idle, .usualidle.response = files[i].response, .idle = files[i].idle, .usual: keys without a meaning in that file. */
static const struct { const char *path, *response, *idle; } files[] = {
    { FOLDER "grpo_fsdp2.yaml", "200,400", " policy.generation.colocated.resources.gpus_per_node policy.dtensor_cfg.lora_cfg.dim " },
    { FOLDER "grpo_single_controller.yaml", "200,400", " " },
    /* loss_fn's is GRPO's; of mixtures; told of the policy; beside fused */
    { FOLDER "ppo_megatron.yaml", "200,400", " policy.generation.colocated.resources.gpus_per_node loss_fn.reference_policy_kl_penalty "
      "policy.megatron_cfg.expert_model_parallel_size policy.megatron_cfg.expert_tensor_parallel_size policy.megatron_cfg.moe_permute_fusion "
      "policy.megatron_cfg.moe_token_dispatcher_type policy.megatron_cfg.moe_shared_expert_overlap policy.megatron_cfg.moe_router_dtype "
      "policy.megatron_cfg.freeze_moe_router value.dtensor_cfg._v2 value.optimizer.kwargs.foreach " },
    { FOLDER "sft_lora.yaml", NULL, " policy.logprob_batch_size policy.dtensor_cfg.sequence_parallel " },
};

/* The phase plan and what is said beside it; null: refused. */
static json_t *outcome(const struct form_file *f, const char *response)
{
    struct phases_asked asked = PHASES_ASKED;
    struct notes notes = { 0 };
    json_t *said = json_array(), *before = notes_divert(said), *out, *doc;
    char why[1024];
    struct fail_sink sink = fail_divert(why, sizeof why);

    asked.plan.cluster = "8xh100";
    asked.response = response;
    doc = phases_imports(f) ? phases_import(&asked, f, &notes) : NULL;
    fail_restore(sink);
    notes_divert(before);
    assert_true(notes.n < (int)(sizeof notes.text / sizeof *notes.text));
    for (int i = 0; i < notes.n; i++)
        json_array_append_new(said, json_string(notes.text[i]));
    out = doc ? json_pack("{sO sO}", "doc", doc, "said", said) : json_null();
    json_decref(doc);
    json_decref(said);
    return out;
}

static bool names(const json_t *outcome, const char *path)
{
    const json_t *line;
    size_t i;

    json_array_foreach(json_object_get(outcome, "said"), i, line)
        if (strstr(json_string_value(line), path))
            return true;
    return json_is_null(outcome);
}

/* --cluster says how many GPUs there are. */
static bool is_idle(const char *idle, const char *path, const json_t *v)
{
    char word[300];

    snprintf(word, sizeof word, " %s ", path);
    return json_is_null(v) || strstr(idle, word) || !strcmp(path, "cluster.gpus_per_node");
}

struct walk { const struct form_file *f; const char *response, *idle; int renamed, replaced, silent; };

static void try_value(struct walk *w, json_t *in, const char *key, json_t *v, const char *path)
{
    json_t *got;

    json_incref(v);
    json_object_set_new(in, key, json_string("zzz.zzz"));
    got = outcome(w->f, w->response);
    if (!json_is_null(got) && !names(got, path))
        w->silent += fail("%s: %s: \"zzz.zzz\" is taken without a word", w->f->path, path) != 0;
    json_decref(got);
    json_object_set_new(in, key, v);
    w->replaced++;
}

static void try_name(struct walk *w, json_t *in, const char *key, json_t *v, const char *path)
{
    char other[100], at[300];
    json_t *got;

    snprintf(other, sizeof other, "%.80s_zzz", key);
    snprintf(at, sizeof at, "%.280s_zzz", path);
    json_object_set(in, other, v);
    json_object_del(in, key);
    got = outcome(w->f, w->response);
    if (!names(got, at))
        w->silent += fail("%s: %s is taken without a word", w->f->path, at) != 0;
    json_decref(got);
    json_object_set(in, key, json_object_get(in, other));
    json_object_del(in, other);
    w->renamed++;
}

static void walk(struct walk *w, json_t *in, const char *section)
{
    json_t *keys = json_copy(in), *v;
    const char *key;

    json_object_foreach(keys, key, v) {
        char path[256], class = nemo_class(section, key);
        snprintf(path, sizeof path, "%.140s%s%.100s", section, *section ? "." : "", key);
        if (class == '?')
            continue;
        assert_true(class != 0);
        try_name(w, in, key, v, path);
        if (json_is_object(v))
            walk(w, v, path);
        else if (class == 'r' && !is_idle(w->idle, path, v))
            try_value(w, in, key, v, path);
    }
    json_decref(keys);
}

static void nonsense_is_told_or_refused(void **state)
{
    int renamed = 0, replaced = 0, silent = 0;

    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct form_file f;
        assert_int_equal(form_open(files[i].path, &f), 0);
        json_t *usual = outcome(&f, files[i].response);
        assert_false(json_is_null(usual));
        json_decref(usual);
        struct walk w = { .f = &f, .response = files[i].response, .idle = files[i].idle };
        walk(&w, f.doc, "");
        renamed += w.renamed;
        replaced += w.replaced;
        silent += w.silent;
        form_close(&f);
    }
    assert_true(renamed > 200 && replaced > 100);
    assert_int_equal(silent, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(nonsense_is_told_or_refused) };

    return cmocka_run_group_tests_name("sim/nemo words", tests, NULL, NULL);
}
