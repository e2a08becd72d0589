/* pchip.c -- Fritsch and Carlson's slopes, and values made monotone first. */
#include "sim/price/pchip.h"

#include <assert.h>
#include <math.h>

/* The slope at an end, from the parabola through three points, held to the sign of the first
 * secant and to three times it, so that the end piece is monotone too. */
static double end_slope(double h0, double h1, double s0, double s1)
{
    double d = ((2 * h0 + h1) * s0 - h0 * s1) / (h0 + h1);

    if (d * s0 <= 0)
        return 0;
    if (s0 * s1 <= 0 && fabs(d) > 3 * fabs(s0))
        return 3 * s0;
    return d;
}

void pchip_slopes(int n, const double *x, const double *y, double *d)
{
    assert(n >= 1);
    for (int i = 0; i < n - 1; i++)
        assert(x[i] < x[i + 1]);
    if (n == 1) {
        d[0] = 0;
        return;
    }
    if (n == 2) {
        d[0] = d[1] = (y[1] - y[0]) / (x[1] - x[0]);
        return;
    }
    for (int i = 1; i < n - 1; i++) {
        double h0 = x[i] - x[i - 1], h1 = x[i + 1] - x[i];
        double s0 = (y[i] - y[i - 1]) / h0, s1 = (y[i + 1] - y[i]) / h1;
        double w0 = 2 * h1 + h0, w1 = h1 + 2 * h0;

        d[i] = s0 * s1 > 0 ? (w0 + w1) / (w0 / s0 + w1 / s1) : 0;
    }
    d[0] = end_slope(x[1] - x[0], x[2] - x[1], (y[1] - y[0]) / (x[1] - x[0]), (y[2] - y[1]) / (x[2] - x[1]));
    d[n - 1] = end_slope(x[n - 1] - x[n - 2], x[n - 2] - x[n - 3], (y[n - 1] - y[n - 2]) / (x[n - 1] - x[n - 2]),
                         (y[n - 2] - y[n - 3]) / (x[n - 2] - x[n - 3]));
}

double pchip_eval(int n, const double *x, const double *y, const double *d, double at)
{
    int    low = 0, high = n - 1;
    double h, t, u;

    if (at <= x[0])
        return y[0];
    if (at >= x[n - 1])
        return y[n - 1];
    while (high - low > 1) {
        int mid = low + (high - low) / 2;
        if (x[mid] <= at)
            low = mid;
        else
            high = mid;
    }
    h = x[high] - x[low];
    t = (at - x[low]) / h;
    u = 1 - t;
    return y[low] * u * u * (1 + 2 * t) + y[high] * t * t * (1 + 2 * u)
           + h * (d[low] * t * u * u - d[high] * t * t * u);
}

/* Whenever a value falls below its block's, the two blocks become one with their mean. */
void pchip_monotone(int n, double *y)
{
    for (int i = 1; i < n; i++) {
        int    first = i;
        double sum = y[i];

        while (first > 0 && y[first - 1] > sum / (i - first + 1)) {
            double level = y[first - 1];        /* a block so far: equal values */
            do
                sum += y[--first];
            while (first > 0 && y[first - 1] == level);
        }
        for (int k = first; first < i && k <= i; k++)
            y[k] = sum / (i - first + 1);
    }
}
