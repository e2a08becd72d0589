/* export.c -- the targets, and what several of them need. */
#include "model/exchange/export.h"

#include <string.h>

#include "base/fail.h"
#include "base/notes.h"
#include "model/arch/recorded.h"
#include "model/arch/training.h"
#include "base/yaml.h"
#include "model/exchange/accelerate.h"
#include "model/exchange/ds_config.h"
#include "model/exchange/megatron_import.h"
#include "model/exchange/script_keys.h"
#include "model/family/family.h"
#include "model/plan/environment.h"
#include "model/plan/knob.h"
#include "model/plan/root_units.h"

const char *export_block_class(const struct plan *p)
{
    const struct family *f = family_find(p->model.family);

    if (p->model.recorded && !p->model.recorded->uneven)
        return p->model.recorded->unit_class[0];
    return f ? f->block_class : NULL;
}

/* Is it the object, or one inside of it? */
static bool within(const char *path, const char *object)
{
    size_t n = strlen(object);

    return !strncmp(path, object, n) && (path[n] == '\0' || path[n] == '.');
}

const char *export_first_changed(const struct plan *p, const char *object, size_t tool, char name[EXPORT_KEY])
{
    struct plan plain = *p;
    const struct knob *k;

    plan_defaults(&plain, p->strategy, p->dialect, p->precision);
    for (int i = 0; (k = knob_at(i)); i++) {
        const struct knob_name *n = knob_name_in(k, tool);
        json_t *v, *usual;
        bool same;
        if (!(k->cells & knob_cell(p)) || !within(k->object, object) || (n->section && knob_concerns(k, n, knob_cell(p))))
            continue;
        v = knob_write(p, k);
        usual = knob_write(&plain, k);
        same = json_equal(v, usual);
        json_decref(v);
        json_decref(usual);
        if (!same) {
            knob_key_text(k, name, EXPORT_KEY);
            return name;
        }
    }
    return NULL;
}

static int export_deepspeed_file(const struct plan *p, FILE *to)
{
    json_t *j = ds_config_export(p);

    if (!j)
        return -1;
    json_dumpf(j, to, JSON_INDENT(2));
    fputc('\n', to);
    json_decref(j);
    return 0;
}

static int export_accelerate_file(const struct plan *p, FILE *to)
{
    json_t *j = accelerate_export(p);

    if (!j)
        return -1;
    script_keys_write(p, KNOB_ACCELERATE, to);
    if (p->accumulation > 1 && p->dialect != DIALECT_DEEPSPEED)
        fprintf(to, "# GradientAccumulationPlugin(num_steps=%lld, sync_each_batch=%s).\n",
                (long long)p->accumulation, p->sync_every_micro_step ? "True" : "False");
    yaml_write(j, to);
    json_decref(j);
    return 0;
}

const char *const export_targets[] = { "deepspeed", "accelerate", "torchtitan", "fsdp", "megatron", "axolotl", "llamafactory", "recipe",
                                       "torchtitan-" TORCHTITAN_OLD, NULL };
static int (*const writers[])(const struct plan *, FILE *) = {
    export_deepspeed_file, export_accelerate_file, export_torchtitan, export_torch, megatron_export,
    export_axolotl, export_llamafactory, export_axolotl, export_torchtitan_old,
};

/* Whose files say what trains. */
static bool has_adapters(int (*writer)(const struct plan *, FILE *), const struct plan *p)
{
    return writer == export_axolotl || writer == export_llamafactory || (writer == export_torch && training_is_lora(&p->train));
}

/* The key by which a plan is more than data parallel; NULL: by none. */
static const char *first_degree(const struct plan *p)
{
    return p->parallel.tensor > 1 ? "parallel.tensor" : p->parallel.context > 1 ? "parallel.context"
         : p->parallel.pipeline > 1 ? "parallel.pipeline" : NULL;
}

static int write_plan(const struct plan *p, const char *target, FILE *to)
{
    const char *grid = first_degree(p);

    if (knob_has(p, "ddp", "wrapped") && !p->ddp.wrapped && (p->ddp.optimizer_in_backward || !strcmp(target, "accelerate")))
        return p->ddp.optimizer_in_backward ? fail("export to %s: ddp.optimizer_in_backward: it has no such option", target)
             : fail("export to %s: ddp.wrapped: one GPU whose model nothing wraps needs no config", target);
    for (int i = 0; export_targets[i]; i++)
        if (!strcmp(export_targets[i], target))
            return !training_is_all(&p->train) && !has_adapters(writers[i], p)
                 ? fail("export: train: adapters and frozen weights are in the training script, not in %s files: export --to axolotl, llamafactory or fsdp",
                        target)
                 : grid && writers[i] != export_torchtitan && writers[i] != export_torchtitan_old && writers[i] != megatron_export &&
                   !(writers[i] == export_deepspeed_file && (p->parallel.pipeline <= 1 || p->dialect == DIALECT_DEEPSPEED))
                 ? fail("export to %s: %s: its files are written for data parallelism; %s has it", target, grid,
                        p->dialect == DIALECT_DEEPSPEED ? "deepspeed" : p->dialect == DIALECT_MEGATRON ? "megatron" : "torchtitan")
                 : writers[i](p, to);
    return fail("export: \"%s\" is not a target; deepspeed, accelerate, torchtitan, fsdp, megatron, axolotl and llamafactory are",
                target);
}

/* What a target makes of FSDP2's embedding and head, whatever a plan says; false: what it says. */
static bool makes_root_units(const struct plan *p, const char *target, enum root_units *makes)
{
    static const char *const by_accelerate[] = { "accelerate", "axolotl", "llamafactory", "recipe" };
    bool titan = !strncmp(target, "torchtitan", strlen("torchtitan")), accelerate = false;

    for (size_t i = 0; i < sizeof by_accelerate / sizeof *by_accelerate; i++)
        accelerate = accelerate || !strcmp(target, by_accelerate[i]);
    if (p->strategy != STRAT_FSDP || p->dialect != DIALECT_TORCH || (!accelerate && !titan) || root_units_refused(p))
        return false;
    *makes = accelerate ? root_units_of_accelerate(p) : root_units_of_torchtitan(p);
    return true;
}

static void tell_root_units(const struct plan *p, const char *target)
{
    enum root_units makes;

    if (makes_root_units(p, target, &makes) && makes != p->fsdp.root_units)
        notes_say("dpx: export to %s: fsdp.root_units: the plan says \"%s\"; %s \"%s\"", target, root_units_name(p->fsdp.root_units),
                  strncmp(target, "torchtitan", strlen("torchtitan")) ? "accelerate 1.14 and later, which nothing else can be told, make it"
                  : "torchtitan, which nothing else can be told, makes it", root_units_name(makes));
}

/* Files of options have no environment. */
static void tell_variable(void *to, const char *name, const char *value) { notes_say("export to %s: set %s=%s for the job", (const char *)to, name, value); }

int export_plan(const struct plan *p, const char *target, FILE *to)
{
    int rc = write_plan(p, target, to);

    if (rc == 0) {
        tell_root_units(p, target);
        environment_each(p, tell_variable, (void *)(uintptr_t)target);
    }
    return rc;
}

/* The only word that the tool has for a key; -1: it has several, or none. */
static int only_word(const struct knob *k, const struct knob_name *n)
{
    int found = -1;

    for (int w = 0; k->type == KNOB_WORD && n->words && k->words[w] && n->words[w]; w++) {
        if (n->words[w][0] && found >= 0)
            return -1;
        if (n->words[w][0])
            found = w;
    }
    return found;
}

void export_settle(struct plan *p, const char *target)
{
    bool accelerate = !strcmp(target, "accelerate");
    size_t tool = accelerate ? KNOB_ACCELERATE : KNOB_TITAN;
    const struct knob *k;

    if (!accelerate && strncmp(target, "torchtitan", strlen("torchtitan")))
        return;                         /* the others have a word for each value */
    for (int i = 0; (k = knob_at(i)); i++) {
        const struct knob_name *n = knob_name_in(k, tool);
        bool chosen = k->turn > 0 || !strcmp(k->name, "optimizer") || !strcmp(k->name, "precision") || !strcmp(k->name, "loss");
        if (chosen || !n->lacks || !knob_concerns(k, n, knob_cell(p)) || knob_sayable(p, k, n))
            continue;
        if (!n->section)
            knob_set(p, k, n->only);
        else if (only_word(k, n) >= 0)
            knob_set(p, k, only_word(k, n));
    }
    if (accelerate && p->strategy == STRAT_FSDP)
        p->reduce_dtype = p->precision;     /* set_mixed_precision() sets param_dtype and reduce_dtype alike */
    makes_root_units(p, target, &p->fsdp.root_units);
    plan_resolve(p);
}

bool export_can(const struct plan *p, const char *target)
{
    FILE *nowhere = fopen("/dev/null", "w");
    char why[256];

    if (!nowhere)
        return false;
    struct fail_sink before = fail_divert(why, sizeof why);
    json_t *ignored = json_array(), *notes = notes_divert(ignored);
    int rc = export_plan(p, target, nowhere);
    notes_divert(notes);
    json_decref(ignored);
    fail_restore(before);
    fclose(nowhere);
    return rc == 0;
}
