/* form_file.c -- see form.h: a file is JSON, YAML, TOML or a command, by its name or else by its text. */
#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/files.h"
#include "base/input.h"
#include "base/shell.h"
#include "base/toml.h"
#include "base/yaml.h"
#include "model/exchange/recipe.h"
#include "model/form/form.h"
#include "model/form/form_config.h"
#include "model/form/form_launcher.h"
#include "model/form/form_trl_launch.h"
#include "model/plan/environment.h"

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);

    return n >= m && !strcmp(s + n - m, end);
}

/* The first line that says something. */
static const char *first_word(const char *text)
{
    for (;; text += strcspn(text, "\n")) {
        text += strspn(text, " \t\r\n");
        if (*text != '#')
            return text;
    }
}

/* "[section]" alone on its line, and nothing after it that YAML would take for a list. */
static bool is_section(const char *at)
{
    size_t n = strcspn(at, "\n");
    const char *close = memchr(at, ']', n);

    if (*at != '[' || !close)
        return false;
    close += close[1] == ']' ? 2 : 1;
    close += strspn(close, " \t\r");
    return *close == '\n' || *close == '\0' || *close == '#';
}

/* `key = value`, which no YAML mapping has. */
static bool is_assignment(const char *at)
{
    size_t n = strspn(at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-");

    return n > 0 && !strncmp(at + n + strspn(at + n, " "), "= ", 2);
}

static enum form_text kind_of(const char *path, const char *text)
{
    const char *at = first_word(text);

    if (ends_with(path, ".toml"))
        return FORM_TOML;
    if (ends_with(path, ".sh") || ends_with(path, ".slurm") || ends_with(path, ".sbatch") || !strncmp(text, "#!", 2))
        return FORM_COMMAND;
    if (ends_with(path, ".yaml") || ends_with(path, ".yml"))
        return FORM_YAML;
    if (*at == '{')
        return FORM_JSON;
    if (is_section(at) || is_assignment(at))
        return FORM_TOML;
    size_t word = strcspn(at, " \t\r\n");
    return word > 0 && (at[word - 1] == ':' || *at == '-' || !strncmp(at, "? ", 2)) && strncmp(at, "--", 2) ? FORM_YAML : FORM_COMMAND;
}

/* ---- commands ---- */

/* Where a launcher stands behind a "--" of a program that hands it on (`python submit.py ... -- accelerate launch train.py`); 0: none does. */
static int behind_wrapper(const json_t *words)
{
    static const char *const launchers[] = { "accelerate", "torchrun", "deepspeed" };
    bool hands_on = false;

    for (int i = 0; i < (int)json_array_size(words); i++) {
        const char *word = json_string_value(json_array_get(words, (size_t)i));
        hands_on = hands_on || !strcmp(word, "--");
        for (size_t k = 0; hands_on && k < sizeof launchers / sizeof *launchers; k++)
            if (!strcmp(word, launchers[k]))
                return i;
    }
    return 0;
}

/* The word that names what trains: a script, a module behind -m, a program with its subcommand; -1: none does. */
static int program_of(const json_t *words)
{
    static const char *const programs[] = { "llamafactory-cli", "trl", "axolotl", "litgpt", "tune", "run_train.sh" };
    int n = (int)json_array_size(words);

    for (int i = behind_wrapper(words); i < n; i++) {
        const char *word = json_string_value(json_array_get(words, (size_t)i)), *base = strrchr(word, '/');
        if (!strncmp(word, "torch.distributed.", 18) || !strcmp(word, "accelerate.commands.launch"))
            continue;                           /* a launcher behind -m */
        if (ends_with(word, ".py") || (i > 0 && (!strcmp(json_string_value(json_array_get(words, (size_t)i - 1)), "-m")
                                                 || !strcmp(json_string_value(json_array_get(words, (size_t)i - 1)), "--module"))))
            return i;
        base = base ? base + 1 : word;
        for (size_t k = 0; k < sizeof programs / sizeof *programs; k++)
            if (!strcmp(base, programs[k]))
                return i;
    }
    return -1;
}

/* Does the program's name say that it does something else than train? */
static bool does_else(const json_t *words)
{
    static const char *const others[] = { "eval", "merge", "convert", "infer", "generat", "predict", "preprocess", "download", "export" };
    const char *name = json_string_value(json_array_get(words, (size_t)program_of(words)));
    bool is = false;

    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        is = is || strstr(name, others[i]);
    if (launcher_does_else(words, program_of(words)))
        return true;
    return is && !strstr(name, "train") && !strstr(name, "tun") && !strstr(name, "sft");
}

/* The last command of the script that trains, else the last of a program, else the last that has options. */
static const json_t *training_command(const json_t *commands)
{
    const json_t *found = NULL;

    for (int all = 0; all < 2 && !found; all++)
        for (size_t i = 0; i < json_array_size(commands); i++)
            if (program_of(json_array_get(commands, i)) >= 0 && (all || !does_else(json_array_get(commands, i))))
                found = json_array_get(commands, i);
    for (size_t i = 0; !found && i < json_array_size(commands); i++)
        for (size_t k = 0; k < json_array_size(json_array_get(commands, i)); k++)
            if (!strncmp(json_string_value(json_array_get(json_array_get(commands, i), k)), "--", 2))
                found = json_array_get(commands, i);
    return found;
}

/* The object under a path's parts but the last, made where it is not there; *last: that part.  NULL: another value is there, or a part
 * is cut within a letter. */
static json_t *nested(json_t *doc, const char *path, const char **last)
{
    char name[128];

    for (size_t n; path[n = strcspn(path, ".")]; path += n + 1) {
        snprintf(name, sizeof name, "%.*s", (int)n, path);
        json_t *next = json_object_get(doc, name);
        if (!next && json_object_set_new(doc, name, next = json_object()) < 0)
            return NULL;
        if (!json_is_object(next))
            return NULL;
        doc = next;
    }
    *last = path;
    return doc;
}

/* a.b=VALUE, +a.b=VALUE, a=VALUE: hydra's words, unless an option waits for its value.  The path's length, 0: it is none. */
static size_t hydra_path(const char *word, bool waits)
{
    size_t n = strcspn(word, "=");
    bool good = word[n] && n > 0 && n < 256 && (memchr(word, '.', n) || !waits);

    for (size_t i = 0; good && i < n; i++)
        good = isalnum((unsigned char)word[i]) || strchr("._@-", word[i]);
    return good && *word != '-' ? n : 0;
}

/* Options --a.b VALUE and hydra's words lie at their paths. */
static json_t *options_at_paths(const json_t *words, size_t from)
{
    json_t *plain = json_array(), *doc = json_object(), *v, *in;
    const char *key, *last;

    for (size_t i = from; i < json_array_size(words); i++) {
        const char *word = json_string_value(json_array_get(words, i));
        const char *path = word + strspn(word, "+"), *before = i > from ? json_string_value(json_array_get(words, i - 1)) : "";
        size_t n = hydra_path(path, !strncmp(before, "--", 2) && !strchr(before, '='));
        char copy[256];
        if (n == 0) {
            json_array_append(plain, json_array_get(words, i));
            continue;
        }
        snprintf(copy, sizeof copy, "%.*s", (int)n, path);
        if ((in = nested(doc, copy, &last)))
            json_object_set_new(in, last, shell_value(path + n + 1));
    }
    json_t *flat = shell_options(plain, 0);
    json_object_foreach(flat, key, v)
        if (*key && (in = nested(doc, key, &last)))
            json_object_set(in, last, v);
    json_decref(flat);
    json_decref(plain);
    return doc;
}

/* Variables that the command itself does not name, but what it runs reads: an environment's, run_train.sh's. */
static void add_uncertain(struct form_file *f, const struct shell_script *s)
{
    static const char *const run_train[] = { "CONFIG_FILE", "MODULE", "CONFIG" };
    bool titan = ends_with(json_array_size(f->words) ? json_string_value(json_array_get(f->words, 0)) : "", "run_train.sh");
    size_t i;
    json_t *v;

    json_array_foreach(s->conditional, i, v) {
        const char *name = json_string_value(v);
        bool is_read = environment_is_variable(name) && !environment_is_idle(name), is_there = false;
        for (size_t k = 0; titan && k < sizeof run_train / sizeof *run_train; k++)
            is_read = is_read || !strcmp(name, run_train[k]);
        for (size_t k = 0; k < json_array_size(f->uncertain); k++)
            is_there = is_there || json_equal(v, json_array_get(f->uncertain, k));
        if (is_read && !is_there)
            json_array_append(f->uncertain, v);
    }
}

static json_t *read_command(struct form_file *f)
{
    struct shell_script s;
    json_t *doc;

    if (!strncmp(first_word(f->text), "--", 2)) {       /* options alone */
        f->words = shell_words(f->text);
        if (!f->words)
            fail("%s: expected options in UTF-8", f->path);
        return f->words ? options_at_paths(f->words, 0) : NULL;
    }
    if (shell_read(f->text, f->path, &s) < 0)
        return NULL;
    json_t *command = (json_t *)(uintptr_t)training_command(s.commands);
    int program = program_of(command);
    for (size_t i = 0; i < json_array_size(s.commands); i++)
        f->programs += program_of(json_array_get(s.commands, i)) >= 0 && (json_array_get(s.commands, i) == command || !does_else(json_array_get(s.commands, i)));
    json_t *before = json_array();
    for (int i = behind_wrapper(command); i < program; i++)
        json_array_append(before, json_array_get(command, (size_t)i));
    f->launcher = shell_options(before, 0);
    launcher_list_unknown(command, program, f->path);
    json_decref(before);
    f->words = json_array();
    for (size_t i = program < 0 ? 0 : (size_t)program; i < json_array_size(command); i++)
        json_array_append(f->words, json_array_get(command, i));
    doc = options_at_paths(f->words, 0);
    f->uncertain = json_incref(s.uncertain);
    add_uncertain(f, &s);
    f->environment = json_incref(s.variables);
    shell_free(&s);
    return doc;
}

/* ---- what accelerate launches with ---- */

int form_launch(struct form_file *f, const char *path)
{
    json_decref(f->launch);
    f->launch = yaml_read_file(path);
    snprintf(f->launch_path, sizeof f->launch_path, "%s", path);
    return f->launch ? 0 : -1;
}

/* Options of `accelerate launch` go over the config that it names, and are named as its keys. */
static void take_option(json_t *launch, const char *key, json_t *v)
{
    static const char *const sections[] = { "fsdp_config", "deepspeed_config", "parallelism_config" };
    const char *section = !strncmp(key, "fsdp_", 5) ? sections[0] : !strncmp(key, "parallelism_config_", 19) ? sections[2]
                        : !strcmp(key, "zero_stage") || !strncmp(key, "offload_", 8) || !strncmp(key, "deepspeed_", 10) || !strncmp(key, "zero3_", 6)
                          ? sections[1] : NULL;

    if (!strcmp(key, "use_fsdp") || !strcmp(key, "use_deepspeed")) {
        json_object_set_new(launch, "distributed_type", json_string(key[4] == 'f' ? "FSDP" : "DEEPSPEED"));
    } else if (!section) {
        json_object_set(launch, key, v);
    } else {
        if (!json_is_object(json_object_get(launch, section)))
            json_object_set_new(launch, section, json_object());
        json_object_set(json_object_get(launch, section), key, v);
    }
}

static int read_launch(struct form_file *f)
{
    static const char *const silent[] = { "", "config_file", "multi_gpu", "main_process_port", "main_process_ip", "machine_rank", "rdzv_backend", "rdzv_conf",
                                          "max_restarts", "role", "monitor_interval", "tee", "num_cpu_threads_per_process", "gpu_ids", "same_network",
                                          "debug" };
    const json_t *before = json_object_get(f->launcher, "");
    bool accelerates = false;
    char path[512];
    const char *key;
    json_t *v;

    for (size_t i = 0; i < json_array_size(before); i++)
        accelerates = accelerates || ends_with(json_string_value(json_array_get(before, i)), "accelerate");
    if (!accelerates)
        return 0;
    const char *config = json_string_value(json_object_get(f->launcher, "config_file"));
    if (config) {
        files_find_above(f->path, config, path, sizeof path);
        if (form_launch(f, path) < 0)
            return -1;
    } else {
        f->launch = json_pack("{s:s}", "distributed_type", "MULTI_GPU");
        snprintf(f->launch_path, sizeof f->launch_path, "%s", f->path);
    }
    json_object_foreach(f->launcher, key, v) {
        bool says = true;
        for (size_t i = 0; i < sizeof silent / sizeof *silent; i++)
            says = says && strcmp(key, silent[i]) != 0;
        if (says)
            take_option(f->launch, key, v);
    }
    const char *type = json_string_value(json_object_get(f->launch, "distributed_type"));
    if (type && strcmp(type, "DEEPSPEED") && (v = json_object_get(f->launcher, "num_cpu_threads_per_process")))
        json_object_set(f->environment, "OMP_NUM_THREADS", v);          /* utils/launch.py, prepare_multi_gpu_env() */
    return 0;
}

bool form_runs(const struct form_file *f, const char *program)
{
    const json_t *lists[] = { f->words, json_object_get(f->launcher, "") };

    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < json_array_size(lists[k]); i++)
            if (ends_with(json_string_value(json_array_get(lists[k], i)), program))
                return true;
    return false;
}

/* `trl dpo` and TRL's own scripts say with their names what TRL's configs may not: which of its trainers it is. */
static const char *trls_script(const char *word)
{
    static const char *const folders[] = { "trl/scripts/", "examples/scripts/", "trl/experimental/", "open_r1/" };

    for (size_t i = 0; word && i < sizeof folders / sizeof *folders; i++) {
        const char *in = strstr(word, folders[i]);
        if (in && ends_with(word, ".py") && (in == word || in[-1] == '/'))
            return strrchr(word, '/') + 1;
    }
    return NULL;
}

static void name_trls_program(struct form_file *f)
{
    const json_t *lists[] = { f->words, json_object_get(f->launcher, "") };
    const char *last = "";

    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < json_array_size(lists[k]); i++) {
            const char *word = json_string_value(json_array_get(lists[k], i)), *name = trls_script(word);
            if (word && !strcmp(last, "trl"))
                name = word;
            if (name)
                json_object_set_new(f->doc, RECIPE_TRL_PROGRAM, json_stringn(name, strcspn(name, ".")));
            last = word && ends_with(word, "trl") ? "trl" : "";
        }
}

static json_t *document(struct form_file *f)
{
    json_error_t e;
    json_t *doc;

    switch (f->kind) {
    case FORM_JSON:
        doc = json_loads(f->text, JSON_REJECT_DUPLICATES, &e);
        if (!doc)
            fail("%s:%d:%d: %s", f->path, e.line, e.column, e.text);
        return doc;
    case FORM_YAML:
        return yaml_read(f->text, strlen(f->text), f->path);
    case FORM_TOML:
        return toml_read(f->text, f->path);
    case FORM_COMMAND:
        break;
    }
    return read_command(f);
}

int form_parse(char *text, const char *name, struct form_file *f)
{
    *f = (struct form_file){ .path = name, .text = text };
    f->kind = kind_of(f->path, f->text);
    f->doc = document(f);
    bool command = f->kind == FORM_COMMAND && json_is_object(f->doc);
    int rc = command ? form_follow(f) : 0;
    if (command && rc == 0)
        name_trls_program(f);
    if (rc == 0 && json_is_object(f->doc) && (!command || read_launch(f) == 0) && form_trl_launch(f) == 0)
        return 0;
    if (f->doc && !json_is_object(f->doc))
        fail("%s: expected keys with values: a config, a recipe or a command", f->path);
    form_close(f);
    return -1;
}

int form_open(const char *path, struct form_file *f)
{
    char *text = input_text(path, 16 << 20, NULL);

    return text ? form_parse(text, strcmp(path, "-") ? path : "standard input", f) : -1;
}

void form_from_doc(const json_t *doc, const char *name, struct form_file *f)
{
    *f = (struct form_file){ .path = name, .kind = FORM_JSON, .doc = json_incref((json_t *)(uintptr_t)doc) };
}

void form_close(struct form_file *f)
{
    free(f->text);
    json_decref(f->doc);
    json_decref(f->words);
    json_decref(f->launcher);
    json_decref(f->uncertain);
    json_decref(f->environment);
    json_decref(f->launch);
    *f = (struct form_file){ .path = "" };
}
