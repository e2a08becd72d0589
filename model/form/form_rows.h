/* form_rows.h -- a form whose keys lie at paths, as a table of rows.
 *
 *     static const struct form_row rows[] = {
 *         { "batch_size",              ROW_SETS,    "micro_batch" },
 *         { "optimizer.lr",            ROW_SILENT,  NULL },
 *         { "optimizer_in_bwd",        ROW_MATTERS, "the optimizer steps within backward" },
 *         { "dtype",                   ROW_READ,    NULL },
 *         { "metric_logger.*",         ROW_SILENT,  NULL },
 *     };
 *     struct form_reading r;
 *     form_begin(&r, f, rows, COUNT(rows), notes);
 *     ... form_text(&r, "dtype") ..., form_set(&r, "precision", json_string("bf16")) ...
 *     return form_end(&r, p);                  the plan of what was set, and a note of every key without a row
 *
 * What a file says becomes keys of plan.json, and plan.json's own reader checks them. */
#ifndef DPX_FORM_ROWS_H
#define DPX_FORM_ROWS_H

#include "model/form/form.h"

enum form_says {
    ROW_READ,               /* the form's function reads it */
    ROW_SETS,               /* its value is that of the plan's key `what` */
    ROW_SILENT,             /* says nothing of a step */
    ROW_MATTERS,            /* is not in the plan: `what` says what it would change */
    ROW_REFUSED,            /* the file is refused where it asks for it: `what` says why */
};

/* A path may end with '*', a section of which all is said at once: one in which nothing is read. */
struct form_row { const char *path; enum form_says says; const char *what; };

/* The row of a path, or NULL. */
const struct form_row *form_row_of(const struct form_row *rows, int n, const char *path);

struct form_reading {
    const struct form_file *file;
    const struct form_row  *rows;
    int           nrows;
    json_t       *plan;     /* keys of plan.json */
    struct notes *notes;
    bool          failed;   /* something was reported: form_end() returns -1 */
};

#define FORM_COUNT(list) ((int)(sizeof (list) / sizeof *(list)))

void form_begin(struct form_reading *r, const struct form_file *f, const struct form_row *rows, int n, struct notes *notes);

/* The value at a path; NULL: none, or null. */
const json_t *form_value(const json_t *doc, const char *path);

/* Values at a path, or `usual` where the file has none.  A value of another kind is reported and makes the reading fail.
 * Numbers may be texts ("2e-4"); a boolean may be "true". */
int64_t     form_count(struct form_reading *r, const char *path, int64_t usual);     /* from 1 to 1e9 */
int64_t     form_integer(struct form_reading *r, const char *path, int64_t usual);   /* from -1e9 to 1e9: 0 and -1 stand for none */
bool        form_true(struct form_reading *r, const char *path, bool usual);
/* optimizer_form of an AdamW of PyTorch with optimizer.fused and optimizer.foreach: foreach is its choice only where neither is given.
 * With fsdp.cpu_offload, already set, a loop is what a plan calls foreach. */
const char *form_of_adamw(struct form_reading *r);
const char *form_text(struct form_reading *r, const char *path, const char *usual);
double      form_number(struct form_reading *r, const char *path, double usual);

/* GPUs of a mesh with these sides; more than any cluster has where they are too many to multiply. */
int64_t     form_ranks(int64_t a, int64_t b, int64_t c);

/* One of the words, by its index; another is refused with the list. */
int         form_word(struct form_reading *r, const char *path, const char *const *words, int usual);

/* Sets a key of the plan ("fsdp.model_dtype"); takes the value. */
void form_set(struct form_reading *r, const char *key, json_t *value);
/* `whose` adapters are in the model's 16 bits, without autocast (lora.narrow); after strategy and base_dtype are set.  Beside packed weights on
 * one GPU the plan's are PEFT's, in fp32 under autocast, with a note. */
void form_narrow_adapters(struct form_reading *r, const char *whose);
/* The attention that `word` names as transformers does ("flash_attention_2"), into the finished plan; `key` says whose word it is.  One that is not planned of
 * this plan is a note.  The modelling code's own ("eager") is kernels "torch-eager", set before. */
void form_put_attention(struct plan *p, const char *key, const char *word, struct notes *notes);
/* The reading fails, with one line. */
void form_fail(struct form_reading *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Micro-steps of a step from the samples that all ranks together take in it, `each` a micro-step of one rank.  `path`
 * names the key in a refusal.  Tensor-, context- and pipeline-parallel ranks, already set, share samples. */
int64_t form_micro_steps(struct form_reading *r, const struct plan *p, const char *path, int64_t global, int64_t each);

/* Notes every key without a row, and what matters.  For forms that make their plan by another reader: form_end() does it itself. */
void form_list_rest(const struct form_file *f, const struct form_row *rows, int n, struct notes *notes);

/* The plan: p.model and p.cluster as they are, the keys that were set, and of what the command line gave seq, micro_batch
 * and accumulation in the place of the file's.  Lists the keys without a row.  Frees what the reading holds. */
int form_end(struct form_reading *r, struct plan *p);

#endif
