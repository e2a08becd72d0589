/* flat_param.h -- sizes of FSDP1's FlatParameter: the parameters of a unit, one
 * after the other in one 1-D tensor, cut into equal shards.
 *
 * use_orig_params false: no padding between parameters; torch.chunk() cuts
 * T elements into shards of ceil(T/N), and the last ones are filled with zeros.
 * use_orig_params true: every parameter starts at a multiple of 16 bytes of the
 * compute dtype, and the end is padded to a multiple of N, which saves the copy
 * before the reduce-scatter.  (_flat_param.py: _init_flat_param_and_metadata,
 * _get_shard, _get_shard_metadata.) */
#ifndef DPX_FLAT_PARAM_H
#define DPX_FLAT_PARAM_H

#include "model/schedule/units.h"

struct flat_rule {
    bool    orig_params;        /* use_orig_params */
    enum dtype kept;            /* the FlatParameter's: fp32, or what the model was moved to */
    enum dtype used;            /* what compute reads: decides the alignment */
    int64_t nranks;             /* ranks of the process group */
    bool    sharded;            /* false: NO_SHARD, every rank keeps all of it */
    int64_t rank;               /* in that group */
    bool    host;               /* the optimizer's tensors take their bytes: they are not the device's, where blocks are of 512 */
};

struct flat_param {
    int64_t numel;              /* elements of the parameters themselves */
    int64_t flat;               /* with what lies between and behind them: the unsharded FlatParameter */
    int64_t shard;              /* elements a rank keeps */
    int64_t padded;             /* nranks * shard, or flat where nothing is sharded */
    int64_t original_bytes;     /* of the parameters as tensors of their own */
    /* What the optimizer of this rank sees: the shard as one tensor, or the pieces
     * of the original parameters that lie in it. */
    int64_t optim_numel, optim_bytes, optim_tensors;
};

struct flat_param flat_param(const struct unit_map *m, enum unit_class c, const struct flat_rule *r);

/* Elements of the model's tensor t that lie in the rank's shard of its unit: with use_orig_params what the optimizer sees. */
int64_t flat_piece(const struct unit_map *m, int t, const struct flat_rule *r);

/* Slices of elements [from, from+n) of the flat parameter, the first of them `at` bytes into the
 * buffer; what lies between and behind the parameters is padding.  `apart`: each piece is an
 * allocation of its own. */
void flat_slices(const struct unit_map *m, struct schedules *s, enum unit_class c, const struct flat_rule *r,
                 int holds, enum dtype t, int64_t from, int64_t n, int64_t at, bool apart);

#endif
