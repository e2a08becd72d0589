/* pchip.h -- a curve through measured points that neither overshoots nor turns back.
 *
 *     pchip_monotone(n, y);               if y should never fall
 *     pchip_slopes(n, x, y, slopes);
 *     t = pchip_eval(n, x, y, slopes, at);
 *
 * Piecewise cubic Hermite interpolation with the slopes of Fritsch and Butland (SIAM J. Sci.
 * Stat. Comput. 5, 1984): between two points the curve stays between their values.  x rises
 * strictly, n >= 1.  Outside the points the end's value holds: extrapolation is the
 * caller's, who knows what the curve is. */
#ifndef DPX_PCHIP_H
#define DPX_PCHIP_H

void   pchip_slopes(int n, const double *x, const double *y, double *slopes);
double pchip_eval(int n, const double *x, const double *y, const double *slopes, double at);

/* Isotonic regression in place: the non-decreasing values nearest to y in least squares
 * (pool adjacent violators). */
void pchip_monotone(int n, double *y);

#endif
