/* host_limits.h -- what this process may use of its machine: processors and memory. */
#ifndef DPX_HOST_LIMITS_H
#define DPX_HOST_LIMITS_H

/* Logical CPUs that this process could use when it began: its affinity, or less where a control group
 * (version 1 or 2) grants less time; a part of one counts as one.  At least 1. */
int host_cores(void);

/* CPUs, bytes that the control groups of this process grant; 0: no limit.  `root` stands before
 * /proc and /sys: "". */
double host_quota(const char *root);
double host_memory_limit(const char *root);

#endif
