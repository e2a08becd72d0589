/* form.h -- a file that somebody brings: whose it is, and the plan that it describes.
 *
 *     struct form_file f;
 *     if (form_open("recipe.yaml", &f) < 0)
 *         return 2;
 *     const struct form *form = form_of(&f);           NULL: no form claims it; reported with the list of forms
 *     ... model_load(form->model(&f), &p.model), cluster_load(...) ...
 *     struct notes notes = { 0 };
 *     if (form && form->read(&f, &p, &notes) == 0)
 *         ... p is complete and checked ...
 *     form_close(&f);
 *
 * A form is told by what only its files have, never by a key that many have: two forms must not claim one file
 * (tests/model/test_form.c).  What a file asks for and the plan does not follow is a note; so is a default of the
 * form's own that decides.  A form is a page, form_NAME.c: its rows (form_rows.h), and what rows cannot say. */
#ifndef DPX_FORM_H
#define DPX_FORM_H

#include <stdbool.h>

#include <jansson.h>

#include "base/notes.h"
#include "model/plan/plan.h"

/* How a file is written.  A command is a line of a shell, or a script that has one. */
enum form_text { FORM_JSON, FORM_YAML, FORM_TOML, FORM_COMMAND };

struct form_file {
    const char *path;
    enum form_text kind;
    char   *text;
    json_t *doc;            /* JSON, YAML, TOML: what it says, an object; a command: its program's options by name, '-' as '_' */
    json_t *words;          /* a command: the program that trains, and its arguments */
    json_t *launcher;       /* a command: options before that program, of torchrun, accelerate, deepspeed */
    int     programs;       /* a script: how many of its commands start one; the last is read */
    json_t *environment;    /* environment variables that the file sets: a script's, or ENV_VARS and env_vars of a document; NULL: none */
    json_t *uncertain;      /* a command: variables that a condition of the script sets */
    json_t *launch;         /* accelerate's config that goes with it: named by the command, or given beside it; NULL: none */
    char    launch_path[512];
};

/* Gives the file accelerate's config of another file.  0, or -1 reported. */
int form_launch(struct form_file *f, const char *path);


/* Does a word of the command, or of what launches it, end so?  false of other files. */
bool form_runs(const struct form_file *f, const char *program);
/* OpenRLHF's: as a module, or by its path. */
bool form_openrlhf_runs(const struct form_file *f, const char *program);

/* Of recipes for transformers' Trainer and what wraps it: 0, or -1 reported, a value that none of their programs takes, or a command of a program that is
 * not theirs, with their options among its own. */
int form_check_program(const struct form_file *f);

struct form;
/* form->read(), and the file's environment: what is not in the plan is a note.  0, or -1 reported. */
int form_read(const struct form *form, const struct form_file *f, struct plan *p, struct notes *notes);
/* The latter alone, into a plan that is read. */
int form_read_environment(const struct form *form, const struct form_file *f, struct plan *p, struct notes *notes);

/* form.allocator of LLaMA-Factory's two forms. */
void form_factorys_allocator(const struct form_file *f, struct plan *p, struct notes *notes);

struct form_row;

struct form {
    const char *name;       /* "torchtune" */
    const char *sign;       /* what only its files have, as a refusal prints it */
    bool        (*claims)(const struct form_file *f);
    int         (*check)(const struct form_file *f);    /* may be NULL: 0, or -1 with what makes the file unreadable whatever the model */
    const char *(*model)(const struct form_file *f);    /* the model that it names, or NULL; nothing is reported */
    json_t     *(*config)(const struct form_file *f);   /* may be NULL: a config.json of the model that the file describes without a
                                                         * name (new reference), or NULL reported */
    /* p.model and p.cluster are set and kept; p.seq, micro_batch and accumulation where they are given in the file's
     * place (0: not).  0, or -1 with the key reported. */
    int         (*read)(const struct form_file *f, struct plan *p, struct notes *notes);
    /* May be NULL: options of PyTorch's allocator that the program sets itself, into p.environment, which has what the file sets. */
    void        (*allocator)(const struct form_file *f, struct plan *p, struct notes *notes);
    const struct form_row *rows;                        /* form_rows.h; NULL: the form's reader has tables of its own */
    int         nrows;
    bool        torchrun;                               /* its own command starts the ranks by torchrun or accelerate */
};

/* Reads and parses the file ("-": standard input).  0, or -1 reported with nothing to close. */
int  form_open(const char *path, struct form_file *f);
/* The same of text that was read already, which the file then owns (malloc()ed); `name` names it. */
int  form_parse(char *text, const char *name, struct form_file *f);
/* The same of a document that a program hands over; the file keeps a reference. */
void form_from_doc(const json_t *doc, const char *name, struct form_file *f);
void form_close(struct form_file *f);

/* The form that claims the file.  NULL: none does, which is reported unless `quietly`. */
const struct form *form_of(const struct form_file *f);
const struct form *form_of_quietly(const struct form_file *f);

/* What the file cannot be planned for whatever the model: the form's own check(), and rows that are refused.  Before the model is looked for, so that
 * a recipe of pictures says that, not that its model is not known.  0, or -1 reported. */
int form_check(const struct form *form, const struct form_file *f);

/* All of them; NULL after the last. */
const struct form *form_at(int i);

/* Five lines that a person can check: model, what trains, the batch's arithmetic, who shares what, what decides memory.
 * Lines of at most 120 columns, each ended by '\n', into `out`.  `form` may be NULL: of a file that only a phase plan is made of. */
void form_summary(const struct form *form, const struct form_file *f, const struct plan *p, char *out, size_t size);

/* ---- the forms, a page each ---- */

extern const struct form form_deepspeed, form_accelerate, form_transformers, form_factory, form_axolotl, form_trl, form_titan, form_megatron,
    form_torchtune, form_litgpt, form_automodel, form_openrlhf, form_verl, form_primerl, form_peft, form_unsloth, form_factory1, form_verl_sft;

#endif
