"""Functions of C in the place of a library's: compiled, and preloaded into the same script, which starts anew."""
import os
import subprocess
import sys
import tempfile


def preload(text, *options, **env):
    """Goes on behind this in a process that has the functions of `text`; its library is DPX_SHIM there."""
    if os.environ.get("DPX_SHIM"):
        return
    folder = tempfile.mkdtemp()
    source, lib = os.path.join(folder, "shim.c"), os.path.join(folder, "shim.so")
    with open(source, "w") as f:
        f.write(text)
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", lib, source, *options], check=True)
    env = dict(os.environ, DPX_SHIM=lib, LD_PRELOAD=lib, HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", **env)
    os.execvpe(sys.executable, [sys.executable] + sys.argv, env)
