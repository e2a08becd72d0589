/* weights.h -- the first values of a model's parameters, any part of any tensor.
 *
 *     struct weights *w = weights_from_seed(&model, 1234);     or weights_from_file()
 *     weights_fill(w, tensor, from, n, out);
 *     weights_close(w);
 *
 * From a seed, a value depends on the seed, the tensor's index and the element's index
 * and on nothing else: however a model is cut into shards, it is the same model.  The
 * distribution is Hugging Face's (PreTrainedModel._init_weights): matrices and embeddings
 * normal(0, init_std), biases 0, norm weights 1; in GPT-2 the projections back into the
 * residual stream (attention's and the MLP's c_proj) normal(0, init_std / sqrt(2*layers)),
 * since that many of them are added up.  Adapters begin as PEFT's do: B at 0, A uniform in +-1/sqrt(in);
 * what is not an adapter has the value that it has in a model without them. */
#ifndef DPX_WEIGHTS_H
#define DPX_WEIGHTS_H

#include <stdint.h>

#include "exec/data/own_tensors.h"
#include "model/arch/transformer.h"

struct weights;

/* The model must outlive the result.  NULL with the reason reported. */
struct weights *weights_from_seed(const struct model *m, uint64_t seed);

/* From a safetensors file (F32, BF16, F16), whose names, shapes and dtypes are checked here.
 * A name may lack the prefix that Hugging Face's base models leave out ("transformer.",
 * "model.", "gpt_neox.").  A tied head and buffers such as attention's mask are passed
 * over; anything else that the model lacks is refused: the file is of another model.  It holds no adapters: these are
 * the seed's, and copies that train begin as their originals. */
struct weights *weights_from_file(const struct model *m, const char *path, uint64_t seed);

/* What trains of a model with adapters, from a file of PEFT's (adapter_model.safetensors); its names, shapes and dtypes are
 * checked here.  0, or -1 reported. */
int weights_take_adapters(struct weights *w, const char *path);

/* Elements [from, from+n) of m->tensors[tensor].  0, or -1 if the file cannot be read.  May be
 * called from several threads at once. */
int weights_fill(const struct weights *w, int tensor, int64_t from, int64_t n, float *out);

/* The same of a tensor of a rank's own model, of which m is the whole; NULL: m itself. */
int weights_fill_own(const struct weights *w, const struct own_tensors *own, int tensor, int64_t from, int64_t n, float *out);

/* Whether all that weights_fill() has read of a file was finite.  0, or -1 with the first tensor that was not, in the
 * model's order, reported. */
int weights_check_finite(const struct weights *w);

void weights_close(struct weights *w);          /* accepts NULL */

#endif
