/* titan_text.h -- torchtitan's configs as text: TOML files (up to 0.2.2), or options one after the other, as people give them on a
 * command line and as `dpxplan export --to torchtitan` prints them (0.3.0); in a script (base/shell.h) those of the last command that starts
 * ./run_train.sh, -m torchtitan.train or train.py, with run_train.sh's variables CONFIG_FILE, MODULE and CONFIG as job.config_file,
 * module and config.  What the script sets itself is followed, its arguments ("$@") are nobody's.
 *
 * All become one JSON object of sections: "parallelism": { "tensor_parallel_degree": 4 }.  An option --section.key VALUE is key of
 * section with '-' as '_'; without a value it is true, and --section.no-key false.  A word of the form name:choice (a subcommand) is
 * "mode" of section name; a lone option (--module) is a key of section "". */
#ifndef DPX_TITAN_TEXT_H
#define DPX_TITAN_TEXT_H

#include <jansson.h>

/* A new reference, or NULL with the place and what was expected reported. */
json_t *titan_text(const char *text, const char *where);

#endif
