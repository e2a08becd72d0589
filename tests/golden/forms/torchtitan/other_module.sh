# another module's configs are another registry's
MODULE=graph_trainer.llama3 CONFIG=llama3_8b ./run_train.sh
