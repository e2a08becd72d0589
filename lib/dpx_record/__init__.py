"""dpx.record: a training step of any torch.nn.Module, written down as a file that dpxplan reads as a model.

    python -m dpx.record mymodel:make -o model.json

`make()` returns a module, (module, inputs) or (module, inputs, loss); README.md says what each may be.  The step runs under
fake tensors: no GPU, no memory for the parameters.  PyTorch is needed here and nowhere else in dpx.
"""
