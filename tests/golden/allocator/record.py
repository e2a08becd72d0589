#!/usr/bin/env python3
"""Records traces.txt and plans.txt from the allocator of a released torch wheel: see README.md.

    record.py -o DIR [--work FOLDER] [--seeds N] [--plans EVENTS_FOLDER]

EVENTS_FOLDER holds one NAME.events a plan, as build/tests/model/test_reserved writes them with DUMP=FOLDER.
"""
import argparse
import glob
import os
import subprocess
import sys
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))


def run(*command, **more):
    return subprocess.run(command, check=True, **more)


def fetch(work):
    """The wheels of requirements.txt, without what they depend on; unpacked."""
    wheels = os.path.join(work, "wheels")
    tree = os.path.join(work, "tree")
    if not os.path.isdir(tree):
        if not glob.glob(os.path.join(wheels, "torch-*.whl")):
            run(sys.executable, "-m", "pip", "download", "--no-deps", "-d", wheels, "-r",
                os.path.join(HERE, "requirements.txt"))
        for wheel in glob.glob(os.path.join(wheels, "*.whl")):
            with zipfile.ZipFile(wheel) as z:
                z.extractall(tree, [n for n in z.namelist() if wanted(n)])
    return tree


def wanted(name):
    return name.endswith((".h", ".hpp", ".inc")) or os.path.basename(name).startswith(("libc10", "libgomp"))


def build(tree, work):
    torch = os.path.join(tree, "torch")
    cuda = [os.path.dirname(p) for p in glob.glob(tree + "/nvidia/**/cuda_runtime_api.h", recursive=True)]
    cuda += [os.path.dirname(os.path.dirname(p)) for p in glob.glob(tree + "/nvidia/**/crt/host_defines.h", recursive=True)]
    needs = subprocess.run(["readelf", "-d", torch + "/lib/libc10_cuda.so"], stdout=subprocess.PIPE, text=True, check=True)
    soname = next(w.strip("[]") for w in needs.stdout.split() if "libcudart" in w)
    stub = os.path.join(work, soname)
    includes = ["-I" + d for d in dict.fromkeys(cuda)]
    run("cc", "-O1", "-shared", "-fPIC", "-Wl,-soname," + soname, *includes, "-o", stub,
        os.path.join(HERE, "cudart_stub.c"))
    witness = os.path.join(work, "witness")
    run("c++", "-O1", "-std=c++20", "-D_GLIBCXX_USE_CXX11_ABI=1", "-DUSE_CUDA", *includes, "-I" + HERE,
        "-I" + torch + "/include", "-o", witness, os.path.join(HERE, "witness.cc"), "-Wl,-z,lazy",
        "-Wl,--unresolved-symbols=ignore-in-shared-libs", "-L" + torch + "/lib", "-lc10_cuda", "-lc10", stub,
        "-Wl,-rpath," + torch + "/lib", "-Wl,-rpath," + work)
    return witness


def traces(witness, seeds, out):
    with open(os.path.join(out, "traces.txt"), "w") as f:
        f.write("# SEED HASH ALLOCATED ACTIVE RESERVED REQUESTED RETRIES OOMS; torch 2.15.0: record.py\n")
        f.flush()
        run(witness, "traces", "1", str(seeds), stdout=f, stderr=subprocess.DEVNULL)


def plans(witness, folder, out):
    with open(os.path.join(out, "plans.txt"), "w") as f:
        f.write("# NAME HASH ALLOCATED ACTIVE RESERVED, the peaks of the three, RETRIES OOMS; torch 2.15.0: record.py\n")
        for path in sorted(glob.glob(os.path.join(folder, "*.events"))):
            with open(path) as events:
                words = events.readline().split()           # NAME HASH
                got = run(witness, "events", input=events.read(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            f.write(" ".join(words) + " " + got.stdout)


def main():
    a = argparse.ArgumentParser()
    a.add_argument("-o", default=HERE)
    a.add_argument("--work", default="build/allocator-witness")
    a.add_argument("--seeds", type=int, default=1200)
    a.add_argument("--plans")
    a = a.parse_args()
    a.work = os.path.abspath(a.work)
    os.makedirs(a.work, exist_ok=True)
    witness = build(fetch(a.work), a.work)
    if a.plans:
        plans(witness, a.plans, a.o)
    else:
        traces(witness, a.seeds, a.o)


if __name__ == "__main__":
    main()
