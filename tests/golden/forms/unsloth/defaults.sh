python unsloth-cli.py --dataset "yahma/alpaca-cleaned" --save_model
