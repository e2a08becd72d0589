/* adapter_folder.h -- a folder of adapters as PEFT has it: adapter_model.safetensors and adapter_config.json.
 *
 * The config is LoraConfig's (peft/tuners/lora/config.py): r, lora_alpha, lora_dropout, target_modules, modules_to_save,
 * fan_in_fan_out (weights stored [in, out], GPT-2's Conv1D), and the name of the base model. */
#ifndef DPX_ADAPTER_FOLDER_H
#define DPX_ADAPTER_FOLDER_H

#include "model/arch/transformer.h"

enum { ADAPTER_PATH = 4096 };

/* "FOLDER/adapter_model.safetensors".  0, or -1 reported: the path is too long. */
int adapter_folder_weights(const char *folder, char path[ADAPTER_PATH]);

/* Makes the folder if it is not there, and writes its config.  0, or -1 reported. */
int adapter_folder_write(const struct model *m, const char *folder);

/* Whether its config says of the adapters what the model's `training` does, as far as numbers depend on it: rank, alpha,
 * and none of what dpx has not (rslora, dora, trained biases).  0, or -1 with the key reported. */
int adapter_folder_check(const struct model *m, const char *folder);

#endif
