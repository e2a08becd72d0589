#!/usr/bin/env python3
"""Records functions of a module as dpx.record does, all in one process, for PyTorch takes longer to load than a small module to record.

    record.py FILE.py -o FOLDER [dpx.record's options --] NAME ...        and those of FILE.py's OPTIONS, a text for each name

A line for each: "recorded NAME" "refused NAME: why", as dpx.record says it, or "failed NAME: why", where the module
could not be made.  Files that are there stay.  QUICK=1: at the first of its sizes alone, and without recompute."""
import contextlib
import gc
import os
import sys
import time

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(here, "..", "..", "lib")]
from dpx_record import shim

shim.preload()
from dpx_record import record, report
from dpx_record.outcome import Refused


def quick(options):
    """At one size, checked at one batch that was not recorded."""
    at = len(options) - 1 - options[::-1].index("--size") + 1
    size, more = options[at].split(",")[0], ["--recompute", "none"]
    return options[:at] + [size] + options[at + 1:] + more + ["--check", "7:" + size]


def one(path, name, folder, options):
    out = os.path.join(folder, name + ".json")
    if os.path.exists(out):
        return "there %s" % name
    began = time.process_time()
    try:
        with contextlib.redirect_stdout(sys.stderr):
            found = record.run(record.options(["%s:%s" % (path, name), "-o", out, "--name", name] + options))
    except Refused as e:
        return "refused %s: %s" % (name, e)
    except Exception as e:      # of the module's own making, as a package that is not there
        return "failed %s: %s: %s" % (name, type(e).__name__, " ".join(str(e).split())[:300])
    with open(os.path.join(folder, name + ".txt"), "w") as f:
        f.write("\n".join(report.lines(found)) + "\n")
    lost = [line for line in report.lines(found) if line.startswith("not done")]
    return "recorded %s in %.0f s%s" % (name, time.process_time() - began, "".join("\n    " + line for line in lost))


def main():
    module, o, folder, *rest = sys.argv[1:]
    assert o == "-o", __doc__
    names = [a for a in rest if not a.startswith("-")] if "--" not in rest else rest[rest.index("--") + 1:]
    options = [] if "--" not in rest else rest[:rest.index("--")]
    sys.path.insert(0, os.path.dirname(os.path.abspath(module)))
    path = os.path.basename(module).replace(".py", "")
    own = getattr(__import__(path), "OPTIONS", {})
    for name in names:
        said = own.get(name, "").split() + options         # the command's go before the file's
        print(one(path, name, folder, quick(said) if os.environ.get("QUICK") else said), flush=True)
        gc.unfreeze()               # the recorder froze what the module was
        gc.collect()


if __name__ == "__main__":
    main()
