# ms-swift, examples/train/tuners/bone/train.sh
CUDA_VISIBLE_DEVICES=0 swift sft --model Qwen/Qwen2.5-7B-Instruct --tuner_type bone --num_train_epochs 1 --per_device_train_batch_size 1 \
    --learning_rate 1e-4 --gradient_accumulation_steps 16 --save_total_limit 2 --logging_steps 5
