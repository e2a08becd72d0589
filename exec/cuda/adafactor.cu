/* Adafactor of one tensor (kernels.h): rows and columns from the gradient, three numbers of the whole tensor, and the update.  The
 * numbers stay on the device.  Sums are in fp64, block by block and then in order. */
#include <math.h>

#include "exec/cuda/optim.h"
#include "exec/cuda/pack.cuh"
#include "exec/kernels/kernels.h"

enum { THREADS = 256, COLUMNS = 32, LANES = THREADS / COLUMNS, PARTS = 256, GRID = 65535 };

/* Sums of p^2, of the rows' means, and of the squares of what the gradient becomes; behind them PARTS of the last. */
struct numbers { double p, row, u, part[PARTS]; };
static_assert(sizeof(struct numbers) + 9216 <= ELEMENTS_WORKSPACE, "beside what elements_sum_squares() takes of it");

static unsigned grid_for(int64_t blocks) { return (unsigned)(blocks < GRID ? blocks : (int64_t)GRID); }

DEVICE float grad_at(const struct cuda_factored &f, enum dtype gt, int64_t i)
{
    float g[1];

    load_as<1>(gt, f.g, i, 1, g);
    return __fmul_rn(f.scale, g[0]);
}

__global__ void begin(struct numbers *n) { n->p = n->row = n->u = 0; }

/* A vector: the mean of one square. */
__global__ void __launch_bounds__(THREADS) squares_of(const GRID_CONSTANT struct cuda_factored f, enum dtype gt)
{
    for (int64_t r = (int64_t)blockIdx.x * THREADS + threadIdx.x; r < f.rows; r += (int64_t)gridDim.x * THREADS) {
        float g = grad_at(f, gt, r);
        f.row[r] += __fmul_rn(f.weight, __fmul_rn(g, g) - f.row[r]);
    }
}

__global__ void __launch_bounds__(THREADS) means_of_rows(const GRID_CONSTANT struct cuda_factored f, enum dtype gt)
{
    SHARED double box[32];

    for (int64_t r = blockIdx.x; r < f.rows; r += gridDim.x) {
        double sum = 0;
        for (int64_t c = threadIdx.x; c < f.cols; c += THREADS) {
            double g = (double)grad_at(f, gt, r * f.cols + c);
            sum += g * g;
        }
        sum = block_sum(sum, box);
        if (threadIdx.x == 0)
            f.row[r] += __fmul_rn(f.weight, (float)(sum / (double)f.cols) - f.row[r]);
    }
}

/* A block has COLUMNS of them, and LANES threads a column. */
__global__ void __launch_bounds__(THREADS) means_of_columns(const GRID_CONSTANT struct cuda_factored f, enum dtype gt)
{
    SHARED double box[LANES][COLUMNS];
    int lane = (int)threadIdx.x / COLUMNS, at = (int)threadIdx.x % COLUMNS;

    for (int64_t c0 = (int64_t)blockIdx.x * COLUMNS; c0 < f.cols; c0 += (int64_t)gridDim.x * COLUMNS) {
        int64_t c = c0 + at;
        double sum = 0;
        for (int64_t r = lane; r < f.rows && c < f.cols; r += LANES) {
            double g = (double)grad_at(f, gt, r * f.cols + c);
            sum += g * g;
        }
        box[lane][at] = sum;
        __syncthreads();
        for (int l = 1; lane == 0 && l < LANES; l++)
            sum += box[l][at];
        if (lane == 0 && c < f.cols)
            f.col[c] += __fmul_rn(f.weight, (float)(sum / (double)f.rows) - f.col[c]);
        __syncthreads();
    }
}

/* The same for all threads of a launch. */
DEVICE float mean_of_rows(const struct cuda_factored &f, const struct numbers *n)
{
    return (float)fmax(n->row / (double)f.rows, (double)ADAFACTOR_EPS1);
}

DEVICE float direction(const struct cuda_factored &f, enum dtype gt, float mean, int64_t i)
{
    int64_t r = i / f.cols;
    float row = f.row[r], v = f.col ? __fmul_rn(row, f.col[i - r * f.cols]) / mean : row;
    float least = (float)(ADAFACTOR_EPS1 * ADAFACTOR_EPS1);

    return grad_at(f, gt, i) / __fsqrt_rn(v > least ? v : least);
}

__global__ void __launch_bounds__(THREADS) squares_of_directions(const GRID_CONSTANT struct cuda_factored f, enum dtype gt, struct numbers *n)
{
    SHARED double box[32];
    int64_t all = f.rows * f.cols, each = (all + gridDim.x - 1) / gridDim.x, from = (int64_t)blockIdx.x * each;
    int64_t to = from + each < all ? from + each : all;
    float mean = mean_of_rows(f, n);
    double sum = 0;

    for (int64_t i = from + threadIdx.x; i < to; i += THREADS) {
        double u = (double)direction(f, gt, mean, i);
        sum += u * u;
    }
    sum = block_sum(sum, box);
    if (threadIdx.x == 0)
        n->part[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(THREADS) add_parts(struct numbers *n)
{
    SHARED double box[32];
    double sum = block_sum(n->part[threadIdx.x], box);

    if (threadIdx.x == 0)
        n->u = sum;
}

__global__ void __launch_bounds__(THREADS) update(const GRID_CONSTANT struct cuda_factored f, enum dtype gt, enum dtype ot, const struct numbers *n)
{
    int64_t all = f.rows * f.cols;
    float mean = mean_of_rows(f, n);
    double step = fmax(ADAFACTOR_EPS2, sqrt(n->p / (double)all)) * f.lr;
    float size = (float)(step / fmax(1.0, sqrt(n->u / (double)all)));

    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < all; i += (int64_t)gridDim.x * THREADS) {
        float p[1] = { __fmul_rn(f.decay, f.p[i]) - __fmul_rn(size, direction(f, gt, mean, i)) };
        f.p[i] = p[0];
        if (f.out)
            store_as<1>(ot, f.out, i, 1, p);
    }
}

extern "C" int adafactor_cuda_update(const struct cuda_factored *f, enum dtype gt, enum dtype ot, void *workspace, struct CUstream_st *s)
{
    struct numbers *n = (struct numbers *)((char *)workspace + ELEMENTS_WORKSPACE - sizeof *n);
    struct cuda_run p = { f->p, f->rows * f->cols }, row = { f->row, f->rows };
    unsigned elements = grid_for((p.n + THREADS - 1) / THREADS);
    int rc;

    if (p.n == 0)
        return 0;
    LAUNCH(begin, 1, 1, 0, s, n);
    if ((rc = cuda_launched("adafactor")) || (rc = elements_sum_squares(1, &p, DT_FP32, &n->p, workspace, s)))
        return rc;
    if (f->col) {
        LAUNCH(means_of_rows, grid_for(f->rows), THREADS, 0, s, *f, gt);
        LAUNCH(means_of_columns, grid_for((f->cols + COLUMNS - 1) / COLUMNS), THREADS, 0, s, *f, gt);
    } else {
        LAUNCH(squares_of, grid_for((f->rows + THREADS - 1) / THREADS), THREADS, 0, s, *f, gt);
    }
    if ((rc = cuda_launched("adafactor")) || (rc = elements_sum(1, &row, DT_FP32, &n->row, workspace, s)))
        return rc;
    LAUNCH(squares_of_directions, PARTS, THREADS, 0, s, *f, gt, n);
    LAUNCH(add_parts, 1, THREADS, 0, s, n);
    LAUNCH(update, elements, THREADS, 0, s, *f, gt, ot, n);
    return cuda_launched("adafactor");
}
