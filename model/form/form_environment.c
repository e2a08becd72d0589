/* form_environment.c -- form_read(): a form's own reader, and the environment variables that its file sets. */
#include "model/form/form.h"

#include <string.h>

#include "base/fail.h"
#include "model/form/form_launcher.h"
#include "model/plan/environment.h"
#include "model/plan/knob.h"

/* A value as a shell has it: a list's words are joined by nothing that a variable could hold, so lists are none. */
static const char *text_of(const json_t *v, char number[32])
{
    if (json_is_integer(v)) {
        snprintf(number, 32, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
        return number;
    }
    return json_string_value(v);
}

/* A script's variables are its own but for those whose names are an environment's; of a document's `env` those in capitals are meant, of a
 * section of variables all. */
static bool is_meant(const struct form_file *f, const json_t *variables, const char *name)
{
    bool section = variables != f->environment;

    return f->words ? environment_is_variable(name) : section || (name[0] >= 'A' && name[0] <= 'Z');
}

/* A value with a dollar is not known. */
static int give(const struct form_file *f, const char *name, const json_t *v, struct plan *p, struct notes *notes)
{
    char number[32];
    const char *text = text_of(v, number), *why = NULL;

    if (!text || environment_is_idle(name))
        return 0;
    if (strchr(text, '$')) {
        notes_add(notes, "%s is not in the plan: the file does not say its value", name);
        return 0;
    }
    switch (environment_give(p, f->path, name, text, &why)) {
    case ENVIRONMENT_REFUSED: return -1;
    case ENVIRONMENT_TAKEN:   break;
    case ENVIRONMENT_LEFT:    notes_add(notes, "%s=%.60s is not in the plan: %s", name, text, why); break;
    case ENVIRONMENT_CHANGED: notes_add(notes, "%s=%.60s: %s", name, text, why); break;
    case ENVIRONMENT_UNKNOWN: notes_add(notes, "%s is not known to change memory or time: it is not in the plan", name); break;
    }
    return 0;
}

static int give_all(const struct form_file *f, const json_t *variables, struct plan *p, struct notes *notes)
{
    const char *name;
    json_t *v;

    json_object_foreach((json_t *)(uintptr_t)variables, name, v)
        if (is_meant(f, variables, name) && give(f, name, v, p, notes) < 0)
            return -1;
    return 0;
}

/* torch/distributed/run.py sets OMP_NUM_THREADS=1 for several ranks of a node, unless it is set; accelerate runs it for DeepSpeed, too
 * (commands/launch.py: deepspeed_launcher()).  Ranks that DeepSpeed's own launcher starts have every core. */
static bool by_torchrun(const struct form *form, const struct form_file *f)
{
    static const char *const programs[] = { "torchrun", "torch.distributed.run", "torch.distributed.launch" };

    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        if (form_runs(f, programs[i]))
            return true;
    return f->launch || (form->torchrun && !form_runs(f, "deepspeed"));
}

static void one_thread_a_rank(const struct form *form, const struct form_file *f, struct plan *p, struct notes *notes)
{
    const struct knob *k = knob_find("", "host_threads", knob_cell(p));

    if (!k || knob_idle(p, k) || dialect_is_torch(p->dialect) || p->cluster.gpus_per_node < 2 || p->host_threads != 0 || !by_torchrun(form, f))
        return;
    p->host_threads = 1;
    notes_add(notes, "the optimizer on the host has one thread a rank, because the launcher sets OMP_NUM_THREADS=1: set that variable, and the plan's "
              "host_threads, to a rank's share of the cores");
}

int form_read(const struct form *form, const struct form_file *f, struct plan *p, struct notes *notes)
{
    return form->read(f, p, notes) < 0 ? -1 : form_read_environment(form, f, p, notes);
}

int form_read_environment(const struct form *form, const struct form_file *f, struct plan *p, struct notes *notes)
{
    static const char *const objects[] = { "ENV_VARS", "env_vars" };     /* Megatron-LM's tests, prime-rl */

    if (give_all(f, f->environment, p, notes) < 0)
        return -1;
    for (size_t i = 0; !f->words && i < sizeof objects / sizeof *objects; i++)
        if (give_all(f, json_object_get(f->doc, objects[i]), p, notes) < 0)
            return -1;
    launcher_list_places(f, p, notes);
    one_thread_a_rank(form, f, p, notes);
    if (form->allocator)
        form->allocator(f, p, notes);
    return environment_check(p, f->path);
}
