/* percent.h -- ratios in words that can be read: no percentage above 999. */
#ifndef DPX_PERCENT_H
#define DPX_PERCENT_H

struct percent_text { char s[24]; };

/* A part of a whole: 0.123 is "12.3 %", 12.3 is "12.3 times"; NaN: "-". */
struct percent_text percent_share(double part);

/* One figure over another: 1.123 is "+12.3 %", 0.5 "-50.0 %", 66860 "66860 times"; NaN and infinity: "-". */
struct percent_text percent_change(double ratio);

/* "12.3 % slower", "5.0 % faster", "20 times slower", of a time over another; NaN and infinity: "-". */
struct percent_text percent_slower(double ratio);

/* "12.3 % faster", "20 times faster", of a ratio above 1. */
struct percent_text percent_faster(double ratio);

#endif
