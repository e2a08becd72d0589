/* Files of training frameworks become the plans that a person reads in them, each is of one form alone, and no key is lost
 * without a word.  The files are in tests/golden/forms, its README says how they were made. */
#include "tests/model/form_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/exchange/recipe.h"
#include "model/exchange/unread.h"
#include "model/exchange/megatron_import.h"
#include "model/form/form_launcher.h"
#include "model/form/form_rows.h"
#include "model/plan/loss_check.h"

static void each_file_is_of_one_form(void **state)
{
    (void)state;
    for (int i = 0; i < nrows; i++) {
        struct form_file f;
        int claimed = 0;
        open_row(&rows[i], &f);
        for (int k = 0; form_at(k); k++)
            if (form_at(k)->claims(&f)) {
                claimed++;
                if (strcmp(form_at(k)->name, rows[i].form))
                    fail_msg("%s: claimed by %s", rows[i].file, form_at(k)->name);
            }
        if (claimed != 1)
            fail_msg("%s: claimed by %d forms", rows[i].file, claimed);
        form_close(&f);
    }
}

/* A value of plan.json as expected.txt spells it. */
static void spell(const json_t *v, char out[512])
{
    size_t n = 0, i;
    json_t *each;

    out[0] = '\0';
    if (!v || json_is_null(v))
        snprintf(out, 512, "null");
    else if (json_is_string(v))
        snprintf(out, 512, "%s", json_string_value(v));
    else if (json_is_array(v))
        json_array_foreach((json_t *)(uintptr_t)v, i, each)
            n += (size_t)snprintf(out + n, 512 - n, "%s%s", n ? "," : "", json_string_value(each));
    else if (json_is_boolean(v))
        snprintf(out, 512, "%s", json_is_true(v) ? "true" : "false");
    else
        snprintf(out, 512, "%.10g", json_number_value(v));
}

static void check_plan(const struct row *r, const struct plan *p)
{
    char wanted[1024], has[512], *save = NULL;
    json_t *doc = plan_to_json(p);

    snprintf(wanted, sizeof wanted, "%s", r->wanted);
    for (char *word = strtok_r(wanted, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        char *value = strchr(word, '=');
        assert_non_null(value);
        *value++ = '\0';
        if (!strcmp(word, "model"))
            snprintf(has, sizeof has, "%s", p->model.name);
        else
            spell(form_value(doc, word), has);
        if (!strcmp(word, "train") && !strcmp(has, "null"))
            snprintf(has, sizeof has, "all");
        if (strcmp(has, value))
            fail_msg("%s: %s is %s, expected %s", r->file, word, has, value);
    }
    json_decref(doc);
}

static void files_become_the_plans_that_people_read(void **state)
{
    (void)state;
    for (int i = 0; i < nrows; i++) {
        struct notes notes = { 0 };
        struct form_file f;
        struct plan p;
        char why[1024], words[256];
        open_row(&rows[i], &f);
        const struct form *form = form_of(&f);
        assert_non_null(form);
        int rc = read_as(form, &f, &rows[i], &p, &notes, why);
        if (!strncmp(rows[i].wanted, "refused=", 8)) {
            snprintf(words, sizeof words, "%s", rows[i].wanted + 8);
            for (char *c = words; *c; c++)
                *c = *c == '_' ? ' ' : *c;
            if (rc == 0 || !strstr(why, words))
                fail_msg("%s: %s", rows[i].file, rc == 0 ? "was read" : why);
        } else if (rc < 0) {
            fail_msg("%s: %s", rows[i].file, why);
        } else {
            check_plan(&rows[i], &p);
        }
        plan_free(&p);
        form_close(&f);
    }
}

/* ---- a command that names its config ---- */

/* Behind a shell's -c stands a command of its own. */
static void a_shells_command_is_no_config(void **state)
{
    static const char *const texts[] = { "srun --mpi=pmix bash -c \"torchrun train.py --max_length 512\"\n", "srun --mpi=pmix /bin/sh -c \"python train.py \\\n --max_length 512\"\n" };
    char why[512];

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct form_file f;
        fail_capture(why, sizeof why);
        int rc = form_parse(strdup(texts[i]), "run.sh", &f);
        fail_capture(NULL, 0);
        assert_int_equal(rc, -1);
        if (!strstr(why, "what a shell runs") || strstr(why, "config"))
            fail_msg("%s: %s", texts[i], why);
    }
}

/* The config is read, the command's options go over it, and one that is not there is refused. */
static void a_commands_config_is_read(void **state)
{
    static const struct { const char *command, *key; int64_t micro; } of[] = {
        { "llamafactory-cli train %s/deep/own.yaml\n", "own.yaml", 3 }, { "llamafactory-cli train deep/own.yaml --per_device_train_batch_size 5\n", "own.yaml", 5 },
        { "torchrun --nproc_per_node 8 train.py --config deep/own.yaml\n", "own.yaml", 3 }, { "accelerate launch train.py deep/none.yaml\n", "none.yaml", 0 },
        { "trl sft --config deep/none.yaml --max_length 512\n", "none.yaml", 0 },
        { "torchrun --nproc_per_node 8 train.py deep/own.yaml rollout.tool_config_path=deep/none.yaml\n", "own.yaml", 3 },
        { "torchrun --nproc_per_node 8 train.py rollout.tool_config_path=deep/none.yaml deep/own.yaml\n", "own.yaml", 3 },
    };
    char folder[] = "/tmp/dpx-forms-XXXXXX", path[128], script[160], text[256], why[512], command[200];

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(command, sizeof command, "mkdir %s/deep", folder);
    assert_int_equal(system(command), 0);
    snprintf(path, sizeof path, "%s/deep/own.yaml", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("model_name_or_path: qwen3-0.6b\nfinetuning_type: full\ncutoff_len: 512\nper_device_train_batch_size: 3\n", file);
    fclose(file);
    snprintf(script, sizeof script, "%s/deep/scripts/run.sh", folder);              /* names it from the folder above */
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct form_file f;
        snprintf(text, sizeof text, of[i].command, folder);
        json_t *said = json_array(), *before = notes_divert(said);
        fail_capture(why, sizeof why);
        int rc = form_parse(strdup(text), script, &f);
        fail_capture(NULL, 0);
        notes_divert(before);
        if (of[i].micro == 0) {
            assert_int_equal(rc, -1);
            assert_non_null(strstr(why, of[i].key));
        } else {
            assert_int_equal(rc, 0);
            assert_int_equal(json_integer_value(json_object_get(f.doc, "per_device_train_batch_size")), of[i].micro);
            assert_string_equal(form_of(&f)->name, "LLaMA-Factory");
            form_close(&f);
        }
        json_decref(said);
    }
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

/* ---- one key renamed to nonsense ---- */

static bool is_told(const struct notes *notes, const char *why, const char *name)
{
    if (strstr(why, name))
        return true;
    for (int i = 0; i < notes->n && i < 32; i++)
        if (strstr(notes->text[i], name))
            return true;
    return notes->n > 32;
}

/* Letters, digits and '_' alone: options are said with '-' or '_'. */
static void plain_name(const char *name, char out[160])
{
    size_t n = 0;

    for (; *name && n < 159; name++)
        if (*name != '-')
            out[n++] = *name;
        else if (n > 0)
            out[n++] = '_';
    out[n] = '\0';
}

/* Lines that a reader says itself. */
static bool is_said(json_t *lines, const char *name)
{
    json_t *line;
    size_t i;

    json_array_foreach(lines, i, line)
        if (strstr(json_string_value(line), name))
            return true;
    return false;
}

static int silent_renames;         /* those that nobody told: all are listed before the test fails */

/* The object's key becomes zzz_KEY, or KEY_zzz, the file is read, and it becomes itself again. */
static void rename_one(const struct row *r, const struct form *form, struct form_file *f, json_t *in, const char *key, const char *as, int *tried)
{
    struct notes notes = { 0 };
    json_t *v = json_incref(json_object_get(in, key));
    char name[160], bare[160], why[1024];
    struct plan p;

    snprintf(name, sizeof name, as, key);
    json_object_del(in, key);
    json_object_set(in, name, v);
    json_t *said = json_array(), *before = notes_divert(said);
    int rc = read_as(form, f, r, &p, &notes, why);
    notes_divert(before);
    plain_name(name, bare);
    if (rc == 0 && !is_told(&notes, why, name) && !is_said(said, name) && !is_said(said, bare))
        silent_renames += fail("%s: \"%s\" instead of \"%s\" is taken without a word", r->file, name, key) != 0;
    plan_free(&p);
    json_object_del(in, name);
    json_object_set_new(in, key, v);
    ++*tried;
}

/* Every key of the mapping, and of mappings and lists in it, with any value.  A data set's id is no key of a form's, nor is a program's name. */
static void mutate(const struct row *r, const struct form *form, struct form_file *f, json_t *in, int *tried)
{
    const char *keys[256], *key;
    int n = 0;
    json_t *v;
    size_t i;

    json_array_foreach(in, i, v)
        mutate(r, form, f, v, tried);
    json_object_foreach(in, key, v)
        if (n < 256 && *key && !strchr(key, '/') && strcmp(key, RECIPE_TRL_PROGRAM))
            keys[n++] = strdup(key);
    for (int k = 0; k < n; k++) {
        rename_one(r, form, f, in, keys[k], "zzz_%s", tried);
        rename_one(r, form, f, in, keys[k], "%s_zzz", tried);
        mutate(r, form, f, json_object_get(in, keys[k]), tried);
        free((void *)(uintptr_t)keys[k]);
    }
}

/* The text with "--OPTION" as "--zzz_OPTION", from `at` on; the caller frees it. */
static char *renamed(const char *text, const char *at)
{
    char *out = malloc(strlen(text) + 5);

    sprintf(out, "%.*szzz_%s", (int)(at - text), text, at);
    return out;
}

static bool in_comment(const char *text, const char *at)
{
    while (at > text && at[-1] != '\n')
        at--;
    return *at == '#';
}

/* Each option of a script, one at a time, and of torchrun, which launches it. */
static void mutate_command(const struct row *r, const char *text, int *tried)
{
    for (const char *at = text; (at = strstr(at, " --")); at++) {
        size_t len = strcspn(at + 3, " =\n\\)\"");
        struct notes notes = { 0 };
        struct form_file f;
        struct plan p;
        char option[160], name[160], why[1024];
        if (len == 0 || len > 100 || in_comment(text, at))
            continue;
        snprintf(option, sizeof option, "zzz_%.*s", (int)len, at + 3);
        plain_name(option, name);
        json_t *said = json_array(), *before = notes_divert(said);
        fail_capture(why, sizeof why);
        bool parsed = form_parse(renamed(text, at + 3), r->file, &f) == 0;      /* not, where what names the config is renamed */
        fail_capture(NULL, 0);
        const struct form *form = parsed ? form_of_quietly(&f) : NULL;
        int rc = form ? read_as(form, &f, r, &p, &notes, why) : -1;
        if (rc == 0)
            launcher_list_elsewhere(&f, &notes);
        notes_divert(before);
        if (rc == 0 && !is_told(&notes, why, name) && !is_told(&notes, why, option) && !is_said(said, name))
            silent_renames += fail("%s: \"%s\" is taken without a word", r->file, name) != 0;
        if (form)
            plan_free(&p);
        json_decref(said);
        form_close(&f);
        ++*tried;
    }
}

static void a_key_renamed_to_nonsense_is_told(void **state)
{
    int tried = 0;

    (void)state;
    for (int i = 0; i < nrows; i++) {
        struct form_file f;
        open_row(&rows[i], &f);
        bool read = strncmp(rows[i].wanted, "refused=", 8) != 0;
        if (read && f.kind == FORM_COMMAND && (!strcmp(rows[i].form, "torchtitan") || !strcmp(rows[i].form, "Megatron-LM")))
            mutate_command(&rows[i], f.text, &tried);
        else if (read)
            mutate(&rows[i], form_of(&f), &f, f.doc, &tried);
        form_close(&f);
    }
    assert_true(tried > 4000);
    assert_int_equal(silent_renames, 0);
}

/* What a condition sets and the command's program reads, though the command does not name it. */
static void variables_of_conditions_are_uncertain(void **state)
{
    static const struct { const char *text, *name; } scripts[] = {
        { "if [ $1 = a ]; then export CONFIG=llama3_8b; else export CONFIG=llama3_70b; fi\nMODULE=llama3 ./run_train.sh\n", "CONFIG" },
        { "if [ $1 = a ]; then CONFIG=llama3_8b; fi\npython -m torchtitan.train --module llama3 --config $CONFIG\n", "CONFIG" },
        { "if [ $1 = a ]; then export NCCL_ALGO=Ring; fi\npython pretrain_gpt.py --num-layers 4\n", "NCCL_ALGO" },
        { "if [ $1 = a ]; then export NCCL_DEBUG=INFO CONFIG=3; fi\npython pretrain_gpt.py --num-layers 4\n", NULL },
        { "if [ $1 = a ]; then export CONFIG=llama3_8b; fi\nMODULE=llama3 CONFIG=llama3_70b ./run_train.sh\n", NULL },
    };

    (void)state;
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        struct form_file f;
        assert_int_equal(form_parse(strdup(scripts[i].text), "train.sh", &f), 0);
        assert_int_equal(json_array_size(f.uncertain), scripts[i].name != NULL);
        if (scripts[i].name)
            assert_string_equal(json_string_value(json_array_get(f.uncertain, 0)), scripts[i].name);
        form_close(&f);
    }
}

static void options_outside_of_the_command_are_named(void **state)
{
    static const char text[] = "#!/bin/bash\n# --comment 1\nhf download a/b --zzz_dir c\nif [ $# -gt 9 ]; then\n  MORE=( --zzz_branch 1 --num-layers 2 )\nfi\n"
                               "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 4 --hidden-size=512\n";
    struct notes notes = { 0 };
    struct form_file f;

    (void)state;
    assert_int_equal(form_parse(strdup(text), "train.sh", &f), 0);
    launcher_list_elsewhere(&f, &notes);
    form_close(&f);
    assert_int_equal(notes.n, 1);
    assert_non_null(strstr(notes.text[0], ": --zzz_dir --zzz_branch"));
    assert_null(strstr(notes.text[0], "--comment"));
    assert_null(strstr(notes.text[0], "--num-layers"));
    assert_null(strstr(notes.text[0], "--nproc_per_node"));
}

/* Megatron-LM's tests have options of a second run, and a number of GPUs for each. */
static void other_sections_name_what_no_option_is(void **state)
{
    json_t *doc = json_pack("{s:{s:{s:i}, s:{s:i, s:i}}, s:{s:i}, s:{s:i, s:i}}", "MODEL_ENV_VARS", "MODEL_ARGS_3", "GPUS_PER_NODE", 2, "MODEL_ARGS_2", "GPUS_PER_NODE",
                            2, "zzz_gpus", 1, "MODEL_ARGS", "--num-layers", 4, "MODEL_ARGS_2", "--num-layers", 4, "--zzz-layers", 4);
    json_t *said = json_array(), *before = notes_divert(said);

    (void)state;
    megatron_list_beside(doc, "t");
    notes_divert(before);
    char *all = json_dumps(said, 0);
    assert_non_null(strstr(all, "MODEL_ARGS_2.--zzz-layers"));
    assert_non_null(strstr(all, "MODEL_ENV_VARS.zzz_gpus"));
    assert_non_null(strstr(all, "MODEL_ENV_VARS.MODEL_ARGS_3"));
    assert_null(strstr(all, "MODEL_ARGS_2.--num-layers"));
    free(all);
    json_decref(said);
    json_decref(doc);
}

/* A section that is left out as a whole has nothing in it that is read. */
static void silent_sections_hold_no_key_that_is_read(void **state)
{
    (void)state;
    for (int k = 0; form_at(k); k++)
        for (int i = 0; i < form_at(k)->nrows; i++) {
            const char *section = form_at(k)->rows[i].path;
            size_t n = strlen(section) - 1;
            for (int j = 0; section[n] == '*' && j < form_at(k)->nrows; j++)
                if (j != i && form_at(k)->rows[j].says != ROW_SILENT && !strncmp(form_at(k)->rows[j].path, section, n))
                    fail_msg("%s: %s is in %s", form_at(k)->name, form_at(k)->rows[j].path, section);
        }
}

/* ---- rules that every form has ---- */

static int read_text(const char *name, const char *text, const char *cluster, struct plan *p, struct notes *notes, char why[1024])
{
    return read_text_of("qwen3-0.6b", name, text, cluster, p, notes, why);
}

/* The ranks are those of --cluster, whatever number the file starts, and the plan is that of a file which says nothing of it. */
static void another_number_of_ranks_is_a_note(void **state)
{
    static const struct { const char *name, *text; } files[] = {
        { "accelerate.yaml", "distributed_type: MULTI_GPU\nmixed_precision: bf16\nnum_processes: 4\n" },
        { "accelerate.yaml", "distributed_type: MULTI_GPU\nmixed_precision: bf16\nnum_machines: 4\n" },
        { "litgpt.yaml", "checkpoint_dir: c\ndevices: 4\ntrain:\n  micro_batch_size: 1\n  global_batch_size: 8\n" },
        { "prime.toml", "[model]\noptimization_dtype = \"bfloat16\"\ncompile = \"None\"\noptim_cpu_offload = false\n[data]\nbatch_size = 8\nseq_len = 512\nmicro_batch_size = 1\n"
                        "[deployment]\nnum_train_gpus = 4\n" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct notes notes = { 0 };
        struct plan p;
        char why[1024];
        if (read_text(files[i].name, files[i].text, "2xh100", &p, &notes, why) < 0)
            fail_msg("%s: %s", files[i].text, why);
        bool said = false;
        for (int k = 0; k < notes.n; k++)
            said = said || strstr(notes.text[k], "those of --cluster");
        if (!said || p.cluster.world_size != 2)
            fail_msg("%s: another number of ranks is not said", files[i].text);
        plan_free(&p);
    }
}

/* Whatever the model: the reason is the recipe's, not that a model is not known. */
static void recipes_of_pictures_and_diffusion_are_refused(void **state)
{
    static const struct { const char *name, *text, *key; } files[] = {
        { "axolotl.yaml", "base_model: a/b-VL\nsequence_len: 512\nprocessor_type: AutoProcessor\n", "processor_type" },
        { "factory.yaml", "model_name_or_path: a/b-VL\nfinetuning_type: full\ncutoff_len: 512\nimage_max_pixels: 262144\n", "image_max_pixels" },
        { "factory.yaml", "model_name_or_path: a/b-VL\nfinetuning_type: full\ncutoff_len: 512\nfreeze_vision_tower: true\n", "freeze_vision_tower" },
        { "axolotl.yaml", "base_model: a/b\nsequence_len: 512\nqat:\n  activation_dtype: int8\n", "qat" },
        { "axolotl.yaml", "base_model: a/b\nsequence_len: 512\nmodel_quantization_config: Mxfp4Config\n", "model_quantization_config" },
        { "axolotl.yaml", "base_model: a/b\nsequence_len: 512\ngptq: true\n", "gptq" },
        { "factory.yaml", "model_name_or_path: a/b\nfinetuning_type: full\ncutoff_len: 512\nuse_badam: true\n", "use_badam" },
        { "automodel.yaml", "recipe: FinetuneRecipeForVLM\nstep_scheduler:\n  local_batch_size: 1\nmodel:\n  pretrained_model_name_or_path: a/b\n",
          "FinetuneRecipeForVLM" },
        { "automodel.yaml", "step_scheduler:\n  local_batch_size: 1\nmodel:\n  pretrained_model_name_or_path: a/b\nflow_matching:\n  adapter_type: flux\n",
          "diffusion" },
        { "verl.sh", "python3 -m verl.trainer.main_ppo actor_rollout_ref.actor.ppo_mini_batch_size=8 actor_rollout_ref.model.path=a/b data.image_key=images\n",
          "data.image_key" },
        { "verl.sh", "python3 -m verl.trainer.main_ppo actor_rollout_ref.actor.ppo_mini_batch_size=8 actor_rollout_ref.model.path=a/b "
          "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1 actor_rollout_ref.model.use_fused_kernels=True actor_rollout_ref.model.fused_kernel_options.impl_backend=cuda\n", "impl_backend" },
        { "verl.sh", "torchrun --nproc-per-node=8 -m verl.trainer.sft_trainer data.train_batch_size=96 model.path=a/b engine.strategy=fsdp2 optim.lr=1e-5\n",
          "verl.trainer.sft_trainer" },
        { "verl.yaml", "actor_rollout_ref:\n  model:\n    path: llama-3.1-8b\n  actor:\n    ppo_mini_batch_size: 256\n    strategy: fsdp\n",
          "give --micro-batch" },
        { "verl.yaml", "defaults:\n  - ppo_megatron_trainer\n  - _self_\nactor_rollout_ref:\n  model:\n    path: llama-3.1-8b\n  actor:\n    ppo_micro_batch_size_per_gpu: 1\n"
          "    megatron: {vanilla_mbridge: false}\n", "vanilla_mbridge" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct notes notes = { 0 };
        struct plan p;
        char why[1024];
        if (read_text(files[i].name, files[i].text, "1xh100", &p, &notes, why) == 0 || !strstr(why, files[i].key))
            fail_msg("%s: %s", files[i].text, why);
        plan_free(&p);
    }
}

/* Sides of a mesh whose product is 2^63 or 2^64, and more ranks that share a sample than there are GPUs. */
static void meshes_larger_than_the_cluster_are_refused(void **state)
{
#define UPDATE "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=gpt2 actor_rollout_ref.actor.ppo_mini_batch_size=8 " \
               "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1 data.max_prompt_length=64 data.max_response_length=64 actor_rollout_ref.actor."
    static const struct { const char *name, *text, *key; } files[] = {
        { "verl.sh", UPDATE "ulysses_sequence_parallel_size=4\n", "ulysses_sequence_parallel_size" },
        { "verl.sh", UPDATE "megatron.tensor_model_parallel_size=536870912 actor_rollout_ref.actor.megatron.pipeline_model_parallel_size=536870912 "
                     "actor_rollout_ref.actor.megatron.context_parallel_size=32\n", "tensor_model_parallel_size" },
        { "verl.sh", UPDATE "ppo_micro_batch_size=1000000000000\n", "a whole number from 1 to 1000000000" },
        { "automodel.yaml", "step_scheduler: {global_batch_size: 8, local_batch_size: 8}\nmodel: {pretrained_model_name_or_path: gpt2}\n"
          "distributed: {strategy: fsdp2, tp_size: 536870912, cp_size: 536870912, pp_size: 64}\npacked_sequence: {packed_sequence_size: 512}\n", "distributed" },
    };
#undef UPDATE

    (void)state;
    for (size_t i = 0; i < 2 * sizeof files / sizeof *files; i++) {
        struct notes notes = { 0 };
        struct plan p;
        char why[1024];
        if (read_text(files[i / 2].name, files[i / 2].text, i % 2 ? "2xh100" : "1xh100", &p, &notes, why) == 0 || !strstr(why, files[i / 2].key))
            fail_msg("%s: %s", files[i / 2].text, why);
        plan_free(&p);
    }
}

/* A key whose usual value is true says something with false; misspelt it is told with that value, too. */
static void a_misspelt_false_is_told(void **state)
{
    static const struct { const char *name, *text, *key; } files[] = {
        { "automodel.yaml", "step_scheduler: {global_batch_size: 8, local_batch_size: 8}\nmodel: {pretrained_model_name_or_path: gpt2}\n"
          "loss_fn: {zzzfp32_upcast: false}\npacked_sequence: {packed_sequence_size: 512}\n", "zzzfp32_upcast" },
        { "axolotl.yaml", "base_model: gpt2\nsequence_len: 512\nmicro_batch_size: 1\nattn_implementation: flash_attention_2\nzzzlora_mlp_kernel: false\n", "zzzlora_mlp_kernel" },
        { "trl.yaml", "model_name_or_path: gpt2\nmax_length: 512\nzzzgradient_checkpointing: false\n", "zzzgradient_checkpointing" },
        { "titan.toml", "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nseq_len = 512\nlocal_batch_size = 1\n[zzz]\nreshard = false\n", "zzz.reshard" },
        { "verl.sh", "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=gpt2 actor_rollout_ref.actor.ppo_mini_batch_size=8 "
          "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1 actor_rollout_ref.model.zzzenable_gradient_checkpointing=False\n",
          "zzzenable_gradient_checkpointing" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct notes notes = { 0 };
        struct plan p;
        char why[1024];
        if (read_text(files[i].name, files[i].text, "1xh100", &p, &notes, why) < 0)
            fail_msg("%s: %s", files[i].name, why);
        if (!is_told(&notes, why, files[i].key))
            fail_msg("%s: \"%s\" is taken without a word", files[i].name, files[i].key);
        plan_free(&p);
    }
}

/* A reason that a note gives is that of this file; an attention that is none is refused, another kernel than the plan's is said. */
static void notes_give_this_files_reasons(void **state)
{
    static const struct { const char *name, *text, *said, *not_said; } files[] = {
        { "trl.yaml", "model_name_or_path: a/b\nmax_length: 512\nattn_implementation: flex_attention\ndtype: bfloat16\n",
          "attention by flex_attention is planned with", "zzz" },
        { "trl.yaml", "model_name_or_path: a/b\nmax_length: 512\nattn_implementation: sdpa\ndtype: bfloat16\n", "loss: chunked-logprob", "attention by" },
        { "grpo.yaml", "model_name_or_path: a/b\nmax_completion_length: 512\nnum_generations: 8\n", "no reference model, as beta is 0, TRL's default",
          "not known" },
        { "arguments.yaml", "per_device_train_batch_size: 1\nmodel_max_length: 512\n", "model_max_length 512 is taken as the samples' length", "not known" },
        { "fsdp.yaml", "distributed_type: FSDP\nmixed_precision: bf16\nfsdp_config:\n  fsdp_version: 1\n  fsdp_limit_all_gathers: true\n"
                       "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n", "batch size is in the training script", "fsdp_limit_all_gathers" },
        { "a.yaml", AUTOMODEL CHAT "  truncation: false\n", "samples are not cut to it", "counts as full" },
        { "a.yaml", AUTOMODEL CHAT, "samples are not cut to it", "counts as full" },                            /* "do_not_truncate" of itself */
        { "a.yaml", AUTOMODEL CHAT "  truncation: false\n  padding: do_not_pad\n", "rows of 512 tokens are planned", "counts as full" },
        { "a.yaml", AUTOMODEL CHAT "  truncation: true\n", "auto (usual)", "samples are not cut" },
        { "a.yaml", AUTOMODEL CHAT "  truncation: longest_first\n", "auto (usual)", "samples are not cut" },
        { "a.yaml", AUTOMODEL CHAT "  padding: max_length\n", "auto (usual)", "samples are not cut" },
        { "a.yaml", AUTOMODEL CHAT "packed_sequence:\n  packed_sequence_size: 1024\n", "every row counts as full", "samples are not cut" },
        { "a.yaml", AUTOMODEL "  backend:\n    attn: te\n" CHAT, "model.backend.attn is not in the plan", "counts as full" },
        { "a.yaml", AUTOMODEL "  backend:\n    attn: sdpa\n" CHAT, "auto (usual)", "model.backend.attn" },
        { "verl.yaml", "actor_rollout_ref:\n  actor:\n    strategy: fsdp\n    fsdp_config:\n      strategy: fsdp2\n    ppo_mini_batch_size: 2\n"
          "    ppo_micro_batch_size_per_gpu: 1\n  model:\n    path: a/b\ndata:\n  max_prompt_length: 256\n  max_response_length: 256\n",
          "planned with actor.strategy, fsdp", "config_name" },
    };
    struct notes notes = { 0 };
    struct plan p;
    char why[1024];

    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        notes = (struct notes){ 0 };
        if (read_text(files[i].name, files[i].text, "2xh100", &p, &notes, why) < 0)
            fail_msg("%s: %s", files[i].text, why);
        if (!notes_say_that(&notes, files[i].said) || notes_say_that(&notes, files[i].not_said))
            fail_msg("%s: not said: %s, or said: %s", files[i].text, files[i].said, files[i].not_said);
        plan_free(&p);
    }
    assert_int_equal(read_text("trl.yaml", "model_name_or_path: a/b\nmax_length: 512\nattn_implementation: flash_atention\n", "2xh100", &p, &notes, why), -1);
    assert_non_null(strstr(why, "is no attention that TRL has"));
    plan_free(&p);
    assert_int_equal(read_text("trl.yaml", "model_name_or_path: a/b\nmax_length: 100000000\n", "2xh100", &p, &notes, why), -1);
    assert_non_null(strstr(why, "from 1 to 1048576"));
    plan_free(&p);
}

/* verl gives the model no labels: Liger-Kernel's layers come with the loss that verl has without them. */
static void liger_in_verl_leaves_the_loss(void **state)
{
    static const struct { const char *model, *kernels, *said; } models[] = {
        { "qwen2.5-0.5b", "rng", NULL }, { "gpt2", "", "Liger-Kernel has no kernels for gpt2" },
    };
    static const struct { const char *text, *asks; enum loss_kind loss; } files[] = {
        { "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=a/b actor_rollout_ref.actor.ppo_mini_batch_size=8 "
          "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1 actor_rollout_ref.model.use_fused_kernels=False "
          "actor_rollout_ref.model.fused_kernel_options.impl_backend=torch data.max_prompt_length=128 data.max_response_length=128",
          " actor_rollout_ref.model.use_liger=True\n", LOSS_FUSED_IN_PLACE },
        { "torchrun --nproc-per-node=2 -m verl.trainer.fsdp_sft_trainer data.train_batch_size=8 data.max_length=256 "
          "data.micro_batch_size_per_gpu=1 model.partial_pretrain=a/b", " model.use_liger=True\n", LOSS_FP32 },
    };

    (void)state;
    for (int i = 0; i < 8; i++) {
        struct notes notes = { 0 };
        struct plan p;
        char text[640], why[1024], kernels[4] = "";
        const struct liger_options *l = &p.liger;
        bool asks = i / 4;
        snprintf(text, sizeof text, "%s%s", files[i % 2].text, asks ? files[i % 2].asks : "\n");
        if (read_text_of(models[i / 2 % 2].model, "verl.sh", text, "2xh100", &p, &notes, why) < 0)
            fail_msg("%s: %s", text, why);
        snprintf(kernels, sizeof kernels, "%s%s%s", l->rope ? "r" : "", l->rms_norm ? "n" : "", l->glu_activation ? "g" : "");
        assert_string_equal(kernels, asks ? models[i / 2 % 2].kernels : "");
        assert_int_equal(p.loss, files[i % 2].loss);
        if (asks && models[i / 2 % 2].said)
            assert_true(notes_say_that(&notes, models[i / 2 % 2].said));
        assert_false(notes_say_that(&notes, "not known"));
        plan_free(&p);
    }
}

/* fsdp_sft_trainer.py names logits of 4 x 1,024 x 151,936 in 16 bits through backward, and without sequence parallelism a copy of 1,023 of each 1,024; two ranks that
 * share a sequence have half of them each and no copy, and of one sample the copy is a view. */
static void logits_that_verl_names_stay(void **state)
{
    static const struct { const char *more; int64_t rows; } files[] = {
        { "\n", 4 * 1024 + 4 * 1023 }, { " ulysses_sequence_parallel_size=2 use_remove_padding=true\n", 4 * 512 }, { " data.micro_batch_size_per_gpu=1\n", 1024 } };

    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct notes notes = { 0 };
        struct plan p;
        char text[640], why[1024];
        snprintf(text, sizeof text, "torchrun --nproc-per-node=2 -m verl.trainer.fsdp_sft_trainer data.train_batch_size=8 data.max_length=1024 "
                 "data.micro_batch_size_per_gpu=4 model.partial_pretrain=a/b%s", files[i].more);
        if (read_text_of("qwen2.5-0.5b", "verl.sh", text, "2xh100", &p, &notes, why) < 0)
            fail_msg("%s: %s", text, why);
        assert_int_equal(loss_kept_bytes(&p), 2 * files[i].rows * 151936);
        assert_false(notes_say_that(&notes, "a copy of them"));
        plan_free(&p);
    }
}

/* prime-rl's own function has `theirs` bytes at most in backward beside hidden states, weight and labels (counted on the meta device; prime_rl/trainer/models/layers/lm_head.py
 * of August 2026).  verl's, which is planned: of 512 rows 20 bytes of each of V logits and two gradients of the weight, or 14 and three, and the gradient of n x H
 * hidden states; of a frozen weight one gradient less. */
static void a_heads_passes_are_told_by_how_much_they_differ(void **state)
{
    static const struct { const char *model, *more; int64_t n, v, h, theirs; } files[] = {
        { "llama-3.1-8b", "", 8192, 128256, 4096, 2594349064 }, { "llama-3.1-8b", "fused_lm_head_token_chunk_size = 4096\n", 16384, 128256, 4096, 1923321864 },
        { "qwen3-0.6b", "", 4096, 151936, 1024, 1057837064 }, { "qwen3-0.6b", "[model.lora]\nrank = 8\ntarget_modules = [\"q_proj\"]\n", 4096, 151936, 1024, 746672136 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct notes notes = { 0 };
        struct plan p;
        char text[400], why[1024], said[120];
        int64_t logits = 512 * files[i].v, weight = 2 * files[i].v * files[i].h, n = strstr(files[i].more, "lora") ? 1 : 2;
        int64_t few = 20 * logits + n * weight, wide = 14 * logits + (n + 1) * weight, ours = (few > wide ? few : wide) + 2 * files[i].n * files[i].h;
        snprintf(text, sizeof text, "# its own_length\n[data]\nseq_len = %d\nbatch_size = 8\n[deployment]\nnum_train_gpus = 8\n[model]\nname = \"a/b\"\n%s", (int)files[i].n, files[i].more);
        if (read_text_of(files[i].model, "sft.toml", text, "8xh100", &p, &notes, why) < 0)
            fail_msg("%s: %s", text, why);
        snprintf(said, sizeof said, "at their largest moment %.2g GB more", (double)(ours - files[i].theirs) * 1e-9);
        if (!notes_say_that(&notes, said))
            fail_msg("%s: not said: %s", text, said);
        plan_free(&p);
    }
}

/* What a plan lacks and has a known bound is a note, 3 x 4 bytes x 16 x 512 x 151936 here, unless the verdict would depend on it. */
static void a_verdict_that_depends_on_what_is_missing_is_refused(void **state)
{
    static const char text[] = "model: qwen3-0.6b\ntrain_dataset: d.yaml\nmicro_batch_size: 16\ncutoff_len: 512\ndist_config:\n  name: fsdp2\n";
    struct notes notes = { 0 };
    struct plan p;
    char why[1024];

    (void)state;
    assert_int_equal(read_text("v1.yaml", text, "8xh100", &p, &notes, why), 0);
    assert_true(notes_say_that(&notes, "up to 14.9 GB more"));
    plan_free(&p);
    assert_int_equal(read_text("v1.yaml", text, "8xrtx4090", &p, &notes, why), -1);
    assert_non_null(strstr(why, "whether it fits is not known"));
    plan_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(notes_give_this_files_reasons),
        cmocka_unit_test(liger_in_verl_leaves_the_loss),
        cmocka_unit_test(logits_that_verl_names_stay),
        cmocka_unit_test(recipes_of_pictures_and_diffusion_are_refused),
        cmocka_unit_test(another_number_of_ranks_is_a_note),
        cmocka_unit_test(a_commands_config_is_read), cmocka_unit_test(a_shells_command_is_no_config),
        cmocka_unit_test(each_file_is_of_one_form),
        cmocka_unit_test(files_become_the_plans_that_people_read),
        cmocka_unit_test(a_key_renamed_to_nonsense_is_told),
        cmocka_unit_test(variables_of_conditions_are_uncertain),
        cmocka_unit_test(options_outside_of_the_command_are_named),
        cmocka_unit_test(other_sections_name_what_no_option_is), cmocka_unit_test(a_misspelt_false_is_told), cmocka_unit_test(meshes_larger_than_the_cluster_are_refused),
        cmocka_unit_test(a_verdict_that_depends_on_what_is_missing_is_refused),
        cmocka_unit_test(silent_sections_hold_no_key_that_is_read), cmocka_unit_test(a_heads_passes_are_told_by_how_much_they_differ),
    };
    read_rows();
    return cmocka_run_group_tests_name("model/form", tests, NULL, NULL);
}
