# values of transformers, docs of several GPUs (run_clm.py: blocks of 1024)
torchrun --nproc_per_node 2 examples/pytorch/language-modeling/run_clm.py --model_name_or_path openai-community/gpt2 \
  --dataset_name wikitext --do_train --output_dir out --per_device_train_batch_size 4 --max_steps 200
