/* form_launcher.c -- options of what starts a program that trains: torchrun, torch.distributed.run and .launch, deepspeed.  They say how many
 * processes start and where, which --cluster says of a plan; one that none of them has may be misspelt, and is told.  (accelerate's are read as its
 * config: form_file.c.) */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/fail.h"
#include "base/notes.h"
#include "model/exchange/unread.h"
#include "model/form/form_launcher.h"

/* torch/distributed/run.py of PyTorch 2.8, deepspeed/launcher/runner.py of DeepSpeed 0.19. */
static const char *const known[] = {
    "nnodes", "nproc_per_node", "rdzv_backend", "rdzv_endpoint", "rdzv_id", "rdzv_conf", "standalone", "max_restarts", "monitor_interval", "start_method",
    "event_log_handler", "role", "module", "no_python", "run_path", "log_dir", "redirects", "tee", "local_ranks_filter", "node_rank", "master_addr",
    "master_port", "local_addr", "logs_specs", "numa_binding", "signals_to_handle", "virtual_local_rank", "use_env", "hostfile", "include", "exclude",
    "num_nodes", "num_gpus", "min_elastic_nodes", "max_elastic_nodes", "launcher", "launcher_args", "no_local_rank", "no_ssh", "no_ssh_check",
    "force_multi", "save_pid", "enable_each_rank_log", "autotuning", "elastic_training", "bind_cores_to_rank", "bind_core_list", "ssh_port", "venv_script",
};

static bool ends_with(const char *word, const char *end)
{
    size_t n = strlen(word), m = strlen(end);

    return n >= m && !strcmp(word + n - m, end);
}

/* Subcommands that train, or what they begin with, of programs that have others: TRL's are told apart by its recipes' reader. */
bool launcher_does_else(const json_t *words, int program)
{
    static const struct { const char *program, *trains[3]; } of[] = {
        { "llamafactory-cli", { "train" } }, { "lmf", { "train" } }, { "axolotl", { "train" } }, { "litgpt", { "finetune", "pretrain" } }, { "tune", { "run" } },
    };
    const char *name = json_string_value(json_array_get(words, (size_t)program)), *slash = strrchr(name, '/');
    const char *next = json_string_value(json_array_get(words, (size_t)program + 1));

    for (size_t i = 0; next && i < sizeof of / sizeof *of; i++) {
        bool trains = *next == '-' || strchr(next, '.') || strchr(next, '/') || strchr(next, '$');      /* no subcommand */
        for (int k = 0; k < 3 && of[i].trains[k]; k++)
            trains = trains || !strncmp(next, of[i].trains[k], strlen(of[i].trains[k]));
        if (!strcmp(slash ? slash + 1 : name, of[i].program))
            return !trains;
    }
    return false;
}

/* LLaMA-Factory's is_env_enabled() (extras/misc.py). */
static bool is_enabled(const struct form_file *f, const char *name)
{
    const json_t *v = json_object_get(f->environment, name);
    const char *word = json_string_value(v);

    return json_is_true(v) || (json_is_integer(v) && json_integer_value(v) == 1)
        || (word && (!strcasecmp(word, "true") || !strcasecmp(word, "y") || !strcmp(word, "1")));
}

/* llamafactory/launcher.py and cli.py: variables that start another program. */
static int check_switches(const struct form_file *f)
{
    static const struct { const char *name, *what; } of[] = {
        { "USE_MCA", "training by Megatron-LM" }, { "USE_V1", "its second command line, whose keys are others," }, { "USE_KT", "training with ktransformers' experts on the host" },
    };

    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        if (is_enabled(f, of[i].name))
            return fail("%s: %s: LLaMA-Factory's %s is not planned: without this variable the Trainer's is", f->path, of[i].name, of[i].what);
    }
    return 0;
}

int launcher_check(const struct form_file *f)
{
    if (!f->words || json_array_size(f->words) == 0)
        return 0;
    if (launcher_does_else(f->words, 0))
        return fail("%s: %.60s %.60s: nothing trains by this command", f->path, json_string_value(json_array_get(f->words, 0)),
                    json_string_value(json_array_get(f->words, 1)));
    return form_runs(f, "llamafactory-cli") || form_runs(f, "lmf") ? check_switches(f) : 0;
}

/* GPUs and nodes that variables name, of which --cluster says as many as there are. */
void launcher_list_places(const struct form_file *f, const struct plan *p, struct notes *notes)
{
    if (is_enabled(f, "USE_RAY") && form_runs(f, "llamafactory-cli") && !json_object_get(f->doc, "ray_num_workers"))
        unread_ranks(notes, "ray_num_workers", 1, p->cluster.world_size);          /* its default; one that is given is told already */
    static const struct { const char *name; bool nodes, factorys; } of[] = {
        { "CUDA_VISIBLE_DEVICES", false, false }, { "NPROC_PER_NODE", false, true }, { "NNODES", true, true },
    };

    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        const json_t *v = json_object_get(f->environment, of[i].name);
        const char *text = json_string_value(v);
        long long n = json_is_integer(v) ? (i ? json_integer_value(v) : 1) : !text || strchr(text, '$') ? 0 : i ? strtoll(text, NULL, 10) : *text != '\0';
        for (const char *at = i ? NULL : text; at && n && (at = strchr(at, ',')); at++)
            n++;
        int64_t has = of[i].nodes ? p->cluster.nodes : p->cluster.gpus_per_node;
        if (n > 0 && n != has && (!of[i].factorys || form_runs(f, "llamafactory-cli")))
            notes_add(notes, "%s: the file starts %lld %s, the plan has %lld, those of --cluster", of[i].name, n, of[i].nodes ? "nodes" : "ranks on a node", (long long)has);
    }
}

void launcher_list_unknown(const json_t *words, int program, const char *where)
{
    struct notes notes = { 0 };
    struct unread u = { .notes = &notes };
    bool starts = false;

    for (int i = 0; i < program; i++) {
        const char *word = json_string_value(json_array_get(words, (size_t)i));
        char name[96];
        size_t n = strcspn(word, "=");
        starts = starts || (*word != '-' && (ends_with(word, "torchrun") || ends_with(word, "deepspeed") || ends_with(word, "torch.distributed.run")
                                             || ends_with(word, "torch.distributed.launch")));
        if (!starts || strncmp(word, "--", 2) || n < 3 || n >= sizeof name)
            continue;
        memcpy(name, word + 2, n - 2);
        name[n - 2] = '\0';
        for (char *c = name; *c; c++)
            *c = *c == '-' ? '_' : *c;
        unread_add(&u, name, NULL, unread_is_among(name, known, sizeof known / sizeof *known));
    }
    unread_end(&u);
    notes_print(&notes, where);
}

/* Is it an option of the command that is read, or of what launches it? */
static bool is_read(const struct form_file *f, const char *option, size_t n)
{
    size_t i;
    json_t *word;
    char name[96];

    json_array_foreach(f->words, i, word)
        if (!strncmp(json_string_value(word), option, n) && (json_string_value(word)[n] == '\0' || json_string_value(word)[n] == '='))
            return true;
    for (size_t k = 2; k <= n; k++)
        name[k - 2] = k == n ? '\0' : option[k] == '-' ? '_' : option[k];
    return json_object_get(f->launcher, name) != NULL;
}

/* In lines of one note each; a name that is there already is not said again. */
static void put(struct notes *notes, char line[240], const char *option, size_t n)
{
    static const char says[] = "not read, in other commands or in branches that are not taken:";
    char name[100];

    snprintf(name, sizeof name, " %.*s", (int)n, option);
    const char *at = strstr(line, name);
    if (at && (at[n + 1] == '\0' || at[n + 1] == ' '))
        return;
    if (strlen(line) + strlen(name) + 1 > 240) {
        notes_add(notes, "%s", line);
        line[0] = '\0';
    }
    snprintf(line + strlen(line), 240 - strlen(line), "%s%s", line[0] ? "" : says, name);
}

void launcher_list_elsewhere(const struct form_file *f, struct notes *notes)
{
    char line[240] = "";

    if (f->kind != FORM_COMMAND || !f->text || !f->words)
        return;
    for (const char *at = f->text, *end; *at; at = *end ? end + 1 : end) {
        end = at + strcspn(at, "\n");
        at += strspn(at, " \t");
        for (const char *c = at; *at != '#' && c < end; c++) {
            bool begins = (c == at || strchr(" \t\"'(=", c[-1])) && c[0] == '-' && c[1] == '-' && isalpha((unsigned char)c[2]);
            size_t n = 2;
            while (begins && (isalnum((unsigned char)c[n]) || c[n] == '-' || c[n] == '_' || c[n] == '.'))
                n++;
            if (begins && n < 96 && !is_read(f, c, n))
                put(notes, line, c, n);
            c += begins ? n - 1 : 0;
        }
    }
    if (line[0])
        notes_add(notes, "%s", line);
}
