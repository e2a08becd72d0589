/* packed.c -- see packed.h. */
#include "model/arch/packed.h"

#include "base/dtype.h"

enum { BLOCK_4 = 64, BLOCK_MAXIMA = 256, CODES_4 = 16, CODES_8 = 256, BIAS_BYTES = 2, GROUP = 128, TILE_ROWS = 8, TILE_COLUMNS = 1024 };

static int64_t blocks(const struct tensor *t) { return ceil_div(t->numel, BLOCK_4); }

/* torchao's int4: elements with those that fill up tiles; 0: rows do not divide into groups, and the weight stays as it is. */
static int64_t grouped(const struct tensor *t)
{
    int64_t rows = t->shape[t->in_out], columns = t->shape[!t->in_out];

    if (columns % GROUP)
        return 0;
    return t->packed == BASE_AO_INT4 ? rows * columns : ceil_div(rows, TILE_ROWS) * TILE_ROWS * ceil_div(columns, TILE_COLUMNS) * TILE_COLUMNS;
}

int64_t packed_codes(const struct tensor *t)
{
    if (t->is_bias)
        return t->numel * BIAS_BYTES;
    if (t->packed == BASE_AO_INT4 || t->packed == BASE_AO_INT4_TILED)
        return grouped(t) ? grouped(t) / 2 : 2 * t->numel;
    return t->packed == BASE_INT8 || t->packed == BASE_AO_INT8 ? t->numel : ceil_div(t->numel, 2);
}

int64_t packed_maxima(const struct tensor *t)
{
    return t->packed == BASE_NF4_DOUBLE && !t->is_bias ? 4 * blocks(t) : 0;
}

int packed_whole_from(enum base_dtype base) { return base == BASE_AO_NF4 ? 3 : 1; }

int64_t packed_sharded(const struct tensor *t)
{
    int64_t bytes[PACKED_PARTS], sum = packed_codes(t);
    int n = packed_parts(t, bytes);

    for (int i = 1; i < n && i < packed_whole_from(t->packed); i++)
        sum += bytes[i];
    return sum;
}

bool packed_nf4(enum base_dtype base) { return base == BASE_NF4 || base == BASE_NF4_DOUBLE || base == BASE_AO_NF4; }

int packed_parts(const struct tensor *t, int64_t bytes[PACKED_PARTS])
{
    if (t->packed == BASE_PLAIN)
        return 0;
    bytes[0] = packed_codes(t);
    if (t->is_bias)
        return 1;
    switch (t->packed) {
    case BASE_INT8:
        bytes[1] = 4 * t->shape[t->in_out];     /* rows are those of [out, in] */
        return 2;
    case BASE_AO_INT8:
        bytes[1] = 4 * t->shape[t->in_out];
        bytes[2] = t->shape[t->in_out];
        return 3;
    case BASE_AO_INT4:
        bytes[1] = bytes[2] = 2 * grouped(t) / GROUP;
        return grouped(t) ? 3 : 0;
    case BASE_AO_INT4_TILED:
        bytes[1] = 2 * 2 * grouped(t) / GROUP;      /* scales beside zero points */
        return grouped(t) ? 2 : 0;
    case BASE_NF4:
        bytes[1] = 4 * blocks(t);
        bytes[2] = 4 * CODES_4;
        return 3;
    case BASE_NF4_DOUBLE:
        bytes[1] = blocks(t);
        bytes[2] = 4 * ceil_div(blocks(t), BLOCK_MAXIMA);
        bytes[3] = 4 * CODES_8;
        bytes[4] = 4;
        bytes[5] = 4 * CODES_4;
        return 6;
    case BASE_AO_NF4:
        bytes[1] = blocks(t);
        bytes[2] = 2 * ceil_div(blocks(t), BLOCK_MAXIMA);
        bytes[3] = 2;
        bytes[4] = 2 * CODES_4;
        return 5;
    case BASE_PLAIN: case NBASE:
        break;
    }
    return 0;
}

int64_t packed_weights(const struct model *m, enum base_dtype base)
{
    int64_t all = 0;

    for (int i = 0; i < m->ntensors; i++) {
        struct tensor t = m->tensors[i];
        int64_t bytes[PACKED_PARTS];
        if (t.packed == BASE_PLAIN || t.is_bias)
            continue;
        t.packed = base;
        int n = packed_parts(&t, bytes);
        all += n ? 0 : 2 * t.numel;
        while (n > 0)
            all += bytes[--n];
    }
    return all;
}
