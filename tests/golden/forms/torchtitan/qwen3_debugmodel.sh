# after torchtitan/models/qwen3/config_registry.py, qwen3_debugmodel, as README.md starts a config
MODULE=qwen3 CONFIG=qwen3_debugmodel ./run_train.sh
