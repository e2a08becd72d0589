/* form_trl_launch.c -- see form_trl_launch.h.
 *
 * trl/cli/accelerate_config.py of TRL 1.16: a file where there is one, else trl/accelerate_configs/NAME.yaml, whose keys that matter
 * to a plan are here.  All are for 8 ranks in bf16. */
#include "model/form/form_trl_launch.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fail.h"
#include "base/files.h"

static const struct { const char *name, *text; } shipped[] = {
    { "fsdp1", "{\"distributed_type\": \"FSDP\", \"fsdp_config\": {\"fsdp_version\": 1, \"fsdp_activation_checkpointing\": false, "
               "\"fsdp_auto_wrap_policy\": \"TRANSFORMER_BASED_WRAP\", \"fsdp_backward_prefetch\": \"BACKWARD_PRE\", "
               "\"fsdp_cpu_ram_efficient_loading\": true, \"fsdp_forward_prefetch\": true, \"fsdp_offload_params\": false, "
               "\"fsdp_reshard_after_forward\": \"FULL_SHARD\", \"fsdp_state_dict_type\": \"FULL_STATE_DICT\", "
               "\"fsdp_sync_module_states\": true, \"fsdp_use_orig_params\": true}, \"mixed_precision\": \"bf16\"}" },
    { "fsdp2", "{\"distributed_type\": \"FSDP\", \"fsdp_config\": {\"fsdp_version\": 2, \"fsdp_activation_checkpointing\": false, "
               "\"fsdp_auto_wrap_policy\": \"TRANSFORMER_BASED_WRAP\", \"fsdp_cpu_ram_efficient_loading\": true, "
               "\"fsdp_offload_params\": false, \"fsdp_reshard_after_forward\": true, \"fsdp_state_dict_type\": \"FULL_STATE_DICT\"}, "
               "\"mixed_precision\": \"bf16\"}" },
    { "zero1", "{\"distributed_type\": \"DEEPSPEED\", \"deepspeed_config\": {\"deepspeed_multinode_launcher\": \"standard\", "
               "\"gradient_accumulation_steps\": 1, \"zero3_init_flag\": false, \"zero_stage\": 1}, \"mixed_precision\": \"bf16\"}" },
    { "zero2", "{\"distributed_type\": \"DEEPSPEED\", \"deepspeed_config\": {\"deepspeed_multinode_launcher\": \"standard\", "
               "\"offload_optimizer_device\": \"none\", \"offload_param_device\": \"none\", \"zero3_init_flag\": false, \"zero_stage\": 2}, "
               "\"mixed_precision\": \"bf16\"}" },
    { "zero3", "{\"distributed_type\": \"DEEPSPEED\", \"deepspeed_config\": {\"deepspeed_multinode_launcher\": \"standard\", "
               "\"offload_optimizer_device\": \"none\", \"offload_param_device\": \"none\", \"zero3_init_flag\": true, "
               "\"zero3_save_16bit_model\": true, \"zero_stage\": 3}, \"mixed_precision\": \"bf16\"}" },
    { "multi_gpu", "{\"distributed_type\": \"MULTI_GPU\", \"mixed_precision\": \"bf16\"}" },
    { "single_gpu", "{\"distributed_type\": \"NO\", \"mixed_precision\": \"bf16\"}" },
};

static int ship(struct form_file *f, const char *name)
{
    for (size_t i = 0; i < sizeof shipped / sizeof *shipped; i++)
        if (!strcmp(shipped[i].name, name)) {
            json_decref(f->launch);
            f->launch = json_loads(shipped[i].text, 0, NULL);
            snprintf(f->launch_path, sizeof f->launch_path, "trl/accelerate_configs/%s.yaml", name);
            return 0;
        }
    return fail("%s: accelerate_config: \"%.80s\" is no file here, and none of TRL's own fsdp1, fsdp2, zero1, zero2, zero3, multi_gpu and single_gpu",
                f->path, name);
}

int form_trl_launch(struct form_file *f)
{
    char name[300], path[512];
    struct stat st;
    const char *said = json_string_value(json_object_get(f->doc, "accelerate_config"));

    if (!said)
        return 0;
    snprintf(name, sizeof name, "%s", said);
    json_object_del(f->doc, "accelerate_config");
    files_find_above(f->path, name, path, sizeof path);
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) ? form_launch(f, path) : ship(f, name);
}
