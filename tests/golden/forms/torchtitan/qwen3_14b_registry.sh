# after torchtitan/models/qwen3/config_registry.py, qwen3_14b, as README.md starts a config
MODULE=qwen3 CONFIG=qwen3_14b ./run_train.sh
