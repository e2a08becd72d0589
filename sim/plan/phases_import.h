/* phases_import.h -- what the importers of phase plans share: the file, values of its keys, and the document that they make.  Each framework is a page of
 * its own, phases_NAME.c. */
#ifndef DPX_PHASES_IMPORT_H
#define DPX_PHASES_IMPORT_H

#include "model/form/form.h"
#include "model/form/form_rows.h"
#include "sim/plan/phases.h"

struct importing {
    const struct phases_asked *a;
    const struct form_file *f;
    struct notes *notes;
    json_t *roles, *phases;         /* of the document */
    const json_t *cluster;          /* of what trains, where that is not all of --cluster; NULL: it is */
    struct plan actor;              /* the model that trains */
    double prompt;                  /* tokens of one that --response states; -1: it does not; below that it may not, as the file says it */
    bool failed;                    /* a value was refused, which is reported */
};

/* A value of the file, or the usual one where the file is silent.  One of another kind is reported, and the import fails. */
double      import_number(struct importing *in, const char *path, double usual);
int64_t     import_count(struct importing *in, const char *path, int64_t least, int64_t usual);
bool        import_flag(struct importing *in, const char *path, bool usual);
const char *import_text(struct importing *in, const char *path, const char *usual);
void        import_refuse(struct importing *in, const char *path, const char *want);

/* The plan of a model that trains, by the form's own reader from `doc`, into *out; `named`: of the model that doc names, whatever --model says.
 * 0, or -1 reported. */
int  import_plan(struct importing *in, json_t *doc, bool named, struct plan *out);
int  import_actor(struct importing *in, json_t *doc);

/* The document: these take `role` and `phase`. */
void import_role(struct importing *in, const char *name, json_t *role);
void import_phase(struct importing *in, json_t *phase);
/* --response, or all as long as they may be; its third number goes to in->prompt.  0, or -1 reported. */
int  import_response(struct importing *in, int64_t longest, json_t **out);
/* The same of a file that does not say how long prompts are: *prompt is --response's third number, or what `limit`, the key `of`, leaves beside the longest
 * response, which is said. */
int  import_lengths(struct importing *in, int64_t longest, int64_t limit, const char *of, json_t **out, double *prompt);
/* The LONGEST of --response, 0 where none is asked for.  And where samples are in the data, as `whose` has it: 0, or -1 reported if it is given. */
int64_t import_longest(const struct importing *in);
int  import_no_response(const struct importing *in, const char *whose);
json_t *import_document(struct importing *in, const char *framework, int64_t samples, int64_t of_prompt, int64_t prompt, json_t *response);
/* A key of an engine where it is not the usual 1. */
void import_positive(json_t *engine, const char *key, int64_t n);
/* A plan's model gets a head of one number (HEAD_SCORE, HEAD_VALUE), whose loss is its own. */
void import_numbers(json_t *plan, enum head_kind head);

/* A phase plan (new reference), or NULL reported. */
json_t *phases_trl(struct importing *in);
json_t *phases_dpo(struct importing *in);
json_t *phases_kto(struct importing *in);
json_t *phases_reward(struct importing *in);
json_t *phases_verl(struct importing *in);
json_t *phases_openrlhf(struct importing *in);
json_t *phases_nemo(struct importing *in);
json_t *phases_primerl(struct importing *in);

/* Options of OpenRLHF's that no plan follows, or that it does not have, are told. */
void phases_openrlhf_known(struct importing *in);

/* Is it one of theirs? */
bool phases_is_trl(const struct form_file *f);
bool phases_is_dpo(const struct form_file *f);
bool phases_is_kto(const struct form_file *f);
bool phases_is_reward(const struct form_file *f);
bool phases_is_nemo(const struct form_file *f);
bool phases_is_primerl(const struct form_file *f);

#endif
