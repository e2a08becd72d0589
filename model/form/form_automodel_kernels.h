/* form_automodel_kernels.h -- which kernels NeMo Automodel runs besides its linear layers: attention, norms, Liger-Kernel's. */
#ifndef DPX_FORM_AUTOMODEL_KERNELS_H
#define DPX_FORM_AUTOMODEL_KERNELS_H

#include "model/form/form_rows.h"

/* Is the model of a class of Automodel's own?  transformers' class it is with force_hf and beside bitsandbytes' layers. */
bool automodel_own_dense(struct form_reading *r, const struct model *m);

/* Packed samples and those of that collater are one row of documents, for which own classes have Transformer Engine's attention (qkv_format "thd"). */
bool automodel_rows_of_documents(const struct form_file *f);

struct automodel_mesh { int64_t tensor, context, pipeline; };

/* Sets liger.*: norms of Automodel's own classes, Liger-Kernel's layers of transformers'. */
void automodel_read_norms(struct form_reading *r, const struct plan *p, const struct automodel_mesh *mesh);

/* The attention, of the finished plan. */
void automodel_put_attention(const struct form_file *f, struct plan *p, struct notes *notes);

/* Full recompute as the Automodel of April 2026 has it: attention, MLP and norms of any dense class are checkpoints of their own. */
void automodel_recompute_modules(struct plan *p);

/* What is not in the finished plan, with its size; the bytes that it lacks. */
double automodel_note_costs(const struct form_file *f, const struct plan *p, struct notes *notes);

/* Values of what is looked up where no reading is at hand, or is one of few words: another fails the reading. */
void automodel_check_values(struct form_reading *r);

#endif
