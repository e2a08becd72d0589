/* titan_float8.h -- torchtitan's float8 linear layers in and out.
 *
 * In: [float8] of its TOML from 2024 (enable_float8_linear) to 0.2.2 ([model] converters, recipe_name, filter_fqns), [quantize.linear.float8]
 * of mid-2025 likewise.  Modules have torchtitan's names there and transformers' in a plan.  Out: what a config of 0.3.0 asks its
 * model_registry() for, since no override does; for 0.2.2 overrides. */
#ifndef DPX_TITAN_FLOAT8_H
#define DPX_TITAN_FLOAT8_H

#include <stdio.h>

#include "model/plan/plan.h"

/* Sets fp8, fp8_filter and FSDP2's gathers.  0, or -1 with the key named; other converters are refused. */
int titan_float8_read(const json_t *config, const char *where, struct plan *p);

/* Comment lines, or overrides of 0.2.2 (old).  0, or -1 with the reason: 0.3.0 has rowwise and rowwise_with_gw_hp. */
int titan_float8_write(const struct plan *p, bool old, FILE *to);

#endif
