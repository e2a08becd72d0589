/* kernels_columns.c -- columns of a[rows][cols] made orthonormal, one after the other; threads share the columns behind it. */
#include "exec/kernels/kernels_columns.h"

#include <assert.h>
#include <math.h>

enum { GRAM_SCHMIDT = 2 };      /* columns, at most (_orthogonalize()) */

/* Of columns i and j from row `from` on. */
static double dot(const float *a, int64_t rows, int64_t cols, int64_t from, int64_t i, int64_t j)
{
    double sum = 0;

    for (int64_t r = from; r < rows; r++)
        sum += (double)a[r * cols + i] * (double)a[r * cols + j];
    return sum;
}

/* Column j += by * column i, from row `from` on. */
static void add(float *a, int64_t rows, int64_t cols, int64_t from, int64_t i, int64_t j, float by)
{
    for (int64_t r = from; r < rows; r++)
        a[r * cols + j] += by * a[r * cols + i];
}

static void scale(float *a, int64_t rows, int64_t cols, int64_t from, int64_t i, double by)
{
    for (int64_t r = from; r < rows; r++)
        a[r * cols + i] = (float)(a[r * cols + i] * by);
}

static void gram_schmidt(int64_t rows, int64_t cols, float *a)
{
    for (int64_t i = 0; i < cols; i++) {
        float norm = (float)sqrt(dot(a, rows, cols, 0, i, i));
        for (int64_t r = 0; r < rows; r++)
            a[r * cols + i] /= norm;
        for (int64_t j = i + 1; j < cols; j++)
            add(a, rows, cols, 0, i, j, (float)-dot(a, rows, cols, 0, i, j));
    }
}

/* I - tau v v' with v = (1, column i below row i) and tau = 2 / v'v, applied to column j. */
static void reflect(float *a, int64_t rows, int64_t cols, int64_t i, int64_t j)
{
    double tau = 2 / (1 + dot(a, rows, cols, i + 1, i, i)), at = a[i * cols + j];
    float by = (float)(-tau * (at + dot(a, rows, cols, i + 1, i, j)));

    a[i * cols + j] = (float)at + by;
    add(a, rows, cols, i + 1, i, j, by);
}

/* Reflection i makes column i zero below row i: v is left there. */
static void reflection(float *a, int64_t rows, int64_t cols, int64_t i)
{
    double below = dot(a, rows, cols, i + 1, i, i), at = a[i * cols + i], norm = sqrt(at * at + below);

    if (below > 0)
        scale(a, rows, cols, i + 1, i, 1 / (at + (at < 0 ? -norm : norm)));
}

/* The first `cols` columns of the product of all reflections, in place: from the last to the first, each upon those behind it, then
 * upon its own unit vector. */
static void product(struct kernels *k, int64_t rows, int64_t cols, float *a)
{
    for (int64_t i = cols - 1; i >= 0; i--) {
        double tau = 2 / (1 + dot(a, rows, cols, i + 1, i, i));
#pragma omp parallel for num_threads(k->threads) schedule(static)
        for (int64_t j = i + 1; j < cols; j++)
            reflect(a, rows, cols, i, j);
        scale(a, rows, cols, i + 1, i, -tau);
        a[i * cols + i] = (float)(1 - tau);
        for (int64_t r = 0; r < i; r++)
            a[r * cols + i] = 0;
    }
}

int columns_orthonormal(struct kernels *k, int64_t rows, int64_t cols, float *a)
{
    assert(cols <= rows);
    if (cols <= GRAM_SCHMIDT) {
        gram_schmidt(rows, cols, a);
        return 0;
    }
    for (int64_t i = 0; i < cols; i++) {
        reflection(a, rows, cols, i);
#pragma omp parallel for num_threads(k->threads) schedule(static)
        for (int64_t j = i + 1; j < cols; j++)
            reflect(a, rows, cols, i, j);
    }
    product(k, rows, cols, a);
    return 0;
}
