"""The Python module as a notebook uses it.  DPX_MODULE: the folder of dpx.py; DPXPLAN: the program, whose answers are the
same.  Run by test_python.sh."""
import importlib.util
import inspect
import json
import os
import re
import subprocess
import sys
import threading
import typing
import unittest
from pathlib import Path

sys.path.insert(0, os.environ["DPX_MODULE"])
import dpx

DPXPLAN = os.environ["DPXPLAN"]
PLAN = {"dpx_plan": 1, "model": "gpt2", "cluster": "2xa100", "seq": 512, "micro_batch": 1,
        "strategy": "ddp", "dialect": "paper", "precision": "fp32"}
PARAMS = 124439808          # GPT-2, Radford et al. 2019


def command(*words: str, given: str = "") -> dict:
    """What dpxplan prints with --json."""
    done = subprocess.run([DPXPLAN, *words, "--json"], input=given, capture_output=True, text=True)
    return json.loads(done.stdout)


def bare(answer: dict) -> dict:
    """Without the seconds of the search and what a command says on standard error."""
    return {key: value for key, value in answer.items() if key not in ("search_s", "notes")}


class Answers(unittest.TestCase):
    def test_bytes_are_those_that_arithmetic_gives(self):
        memory = dpx.evaluate(PLAN)["memory"]
        self.assertEqual(memory["params_bytes"], 4 * PARAMS)
        self.assertEqual(memory["optimizer_bytes"], 8 * PARAMS)

    def test_they_are_those_of_the_commands(self):
        plan = json.dumps(PLAN)
        self.assertEqual(bare(dpx.evaluate(PLAN, set={"nodes": 2})), command("eval", "-", "--set", "nodes=2", given=plan))
        self.assertEqual(bare(dpx.explain(PLAN)), command("explain", "-", given=plan))
        self.assertEqual(bare(dpx.explain(PLAN, set={"nodes": 2})), command("explain", "-", "--set", "nodes=2", given=plan))
        words = "--model gpt2 --cluster 2xa100 --seq 512 --global-batch 4 --strategy ddp,fsdp --top 2".split()
        self.assertEqual(bare(dpx.search("gpt2", "2xa100", 512, 4, strategy=["ddp", "fsdp"], top=2)),
                         bare(command("search", *words)))

    def test_sweeps_limits_and_names_are_those_of_the_commands(self):
        plan, words = json.dumps(PLAN), "--cluster 2xa100 --model gpt2 --seq 512 --dialect paper".split()
        swept = dpx.sweep({"seq": ["256", "512"], "nodes": "1..4*2"}, PLAN)
        self.assertEqual(bare(swept), command("sweep", "-", "--over", "seq=256,512", "nodes=1..4*2", given=plan))
        self.assertEqual([(point["at"]["seq"], point["at"]["nodes"]) for point in swept["points"]],
                         [(256, 1), (256, 2), (256, 4), (512, 1), (512, 2), (512, 4)])
        self.assertEqual(swept["points"][3]["step_s"], dpx.evaluate(PLAN)["time"]["step_s"])
        self.assertEqual(bare(dpx.limits("2xa100", "gpt2", 512, dialect="paper")), command("limits", *words))
        self.assertEqual(bare(dpx.bill(PLAN, tokens="1T", mtbf="llama3", storage="5GB/s")),
                         command("bill", "-", *"--tokens 1T --mtbf llama3 --storage 5GB/s".split(), given=plan))
        self.assertEqual(bare(dpx.phases("demo/grpo.json")), command("phases", "demo/grpo.json"))
        for what in "models", "clusters", "gpus", "strategies", "parallel", "keys", "refused":
            self.assertEqual(dpx.known(what), command("list", what)[what])

    def test_the_least_number_is_that_of_the_command(self):
        words = "gpt2 t4 h100 --seq 512 --batch 4 --tokens 1M --price t4=0.5".split()
        self.assertEqual(bare(dpx.fit("gpt2", "t4", "h100", seq=512, batch=4, tokens="1M", price="t4=0.5")), command("fit", *words))
        self.assertEqual(len(dpx.fit("gpt2", seq=512, batch=4)["gpus"]), 8)
        for named in (("t4", "h100"),), (["t4", "h100"],), ("t4", ["h100"]):
            self.assertEqual([row["gpu"] for row in dpx.fit("gpt2", *named, seq=512, batch=4)["gpus"]], ["t4", "h100"], named)
        for named in 5, [5], {"t4": 1}, b"t4":
            with self.assertRaises((dpx.DpxError, TypeError), msg=named):
                dpx.fit("gpt2", named, seq=512)

    def test_every_answer_has_the_version(self):
        for answer in dpx.evaluate(PLAN), dpx.fit("gpt2", "t4", seq=512, batch=4), dpx.limits(memory="80GB", world=8, states_only=True):
            self.assertEqual(answer["version"], dpx.version())

    def test_a_sweep_ends_when_it_is_told_to(self):
        with self.assertRaises(dpx.Cancelled) as caught:
            dpx.sweep({"network": "1..100000"}, PLAN, progress=lambda done, total: False)
        self.assertIn("of 100000 points", str(caught.exception))

    def test_a_plan_goes_from_one_call_to_the_next(self):
        best = dpx.search("llama-3.2-1b", "2xa100", "512", 4, strategy="fsdp", export_to="torchtitan", top=1)["plans"][0]
        self.assertEqual(dpx.evaluate(best["plan"])["label"], best["label"])
        self.assertIn("--", dpx.export(best["plan"], "torchtitan"))

    def test_what_is_exported_is_imported_again(self):
        plan = dpx.evaluate(dict(PLAN, strategy="zero2", dialect="deepspeed", precision="bf16"))["plan"]
        config = json.loads(dpx.export(plan, "deepspeed"))
        again = dpx.import_plan(plan["model"], plan["cluster"], 512, ds_config=config)
        self.assertEqual(again["plan"], plan)

    def test_files_and_documents_are_the_same(self):
        path = Path(os.environ["SCRATCH"]) / "plan.json"
        path.write_text(json.dumps(PLAN))
        self.assertEqual(dpx.evaluate(path), dpx.evaluate(PLAN))
        self.assertEqual(dpx.evaluate(str(path)), dpx.evaluate(PLAN))

    def test_two_plans_and_a_message(self):
        two = dpx.explain(PLAN, dict(PLAN, micro_batch=2))
        self.assertEqual(two["options"], [{"key": "micro_batch", "first": 1, "second": 2}])
        said = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 39.39 GiB of which 1.00 GiB is free."
        self.assertEqual(dpx.explain(PLAN, oom_text=said + " Of the allocated memory 30.00 GiB is allocated by PyTorch, and "
                                     "2.00 GiB is reserved by PyTorch but unallocated.")["message"]["tried_bytes"], 2 << 30)
        statistics = {"allocated_bytes.all.peak": 1 << 30, "reserved_bytes.all.peak": 2 << 30}
        self.assertEqual(dpx.explain(PLAN, oom=statistics)["message"]["reserved_bytes"], 2 << 30)

    def test_a_stage_has_its_own_schedule(self):
        plan = dict(PLAN, accumulation=2, parallel={"pipeline": 2})
        stages = [dpx.explain(plan, schedule=True, stage=stage)["schedule"] for stage in (0, 1)]
        self.assertNotEqual(*stages)
        self.assertEqual(stages, [dpx.explain(plan, schedule=True, rank=rank)["schedule"] for rank in (0, 1)])

    def test_that_nothing_fits_is_an_answer(self):
        answer = dpx.search("llama-3.1-8b", "2xv100", 2048, 2, strategy="ddp", no_offload=True)
        self.assertEqual(answer["fitting"], 0)
        self.assertFalse(answer["plans"][0]["fits"])


class Errors(unittest.TestCase):
    def test_one_clear_line(self):
        wrong = [
            (lambda: dpx.evaluate(PLAN, set={"sq": 1}), "did you mean seq?"),
            (lambda: dpx.evaluate(PLAN, tokns=1), "did you mean tokens?"),
            (lambda: dpx.evaluate("/nowhere.json"), "/nowhere.json: No such file"),
            (lambda: dpx.evaluate(PLAN, price=float("nan")), "the request is no JSON"),
            (lambda: dpx.evaluate(PLAN, set={"seq": object()}), "object is nothing that JSON has"),
            (lambda: dpx.search("gpt22", "2xa100", 512, 4), "did you mean gpt2"),
            (lambda: dpx.search("gpt2", "2xa100", 512, 3, no_grid=True), "not a multiple"),
            (lambda: dpx.export(PLAN, "megatron"), "megatron"),
        ]
        for call, said in wrong:
            with self.assertRaises(dpx.DpxError) as caught:
                call()
            self.assertIn(said, str(caught.exception))
            self.assertNotIn("\n", str(caught.exception))
            self.assertEqual(caught.exception.status, 2)

    def test_a_missing_library_is_named(self):
        done = subprocess.run([sys.executable, "-c", "import dpx; dpx.version()"], capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": os.environ["DPX_MODULE"], "DPX_LIBRARY": "/nowhere/libdpx.so.0"})
        self.assertIn("ImportError: /nowhere/libdpx.so.0", done.stderr)
        self.assertIn("DPX_LIBRARY=", done.stderr)


class Progress(unittest.TestCase):
    def search(self, progress):
        return dpx.search("llama-3.1-8b", "4x8xh100", "8k", 256, progress=progress)

    def test_it_is_told_in_the_caller_s_thread(self):
        seen = []
        self.search(lambda done, total: seen.append((threading.current_thread(), done, total)))
        self.assertTrue(seen)
        self.assertEqual({thread for thread, _, _ in seen}, {threading.current_thread()})
        self.assertTrue(all(0 <= done <= total for _, done, total in seen))

    def test_false_ends_the_search(self):
        with self.assertRaises(dpx.Cancelled) as caught:
            self.search(lambda done, total: False)
        self.assertEqual(caught.exception.status, 4)

    def test_its_exception_is_the_caller_s(self):
        def broken(done, total):
            raise KeyboardInterrupt
        with self.assertRaises(KeyboardInterrupt):
            self.search(broken)

    def test_ctrl_c_ends_a_search_without_progress(self):
        program = ("import os, signal, threading, dpx\n"
                   "threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()\n"
                   "try:\n"
                   "    while True:\n"
                   "        dpx.search('gpt2', '2xa100', 512, 4)\n"
                   "except KeyboardInterrupt:\n"
                   "    print('interrupted')\n")
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120,
                              env={**os.environ, "PYTHONPATH": os.environ["DPX_MODULE"]})
        self.assertEqual(done.stdout, "interrupted\n", done.stderr)


class Module(unittest.TestCase):
    def test_threads_get_the_same_answers(self):
        want, got = dpx.evaluate(PLAN), []
        threads = [threading.Thread(target=lambda: got.append(dpx.evaluate(PLAN))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(got, [want] * 8)

    def test_answers_are_typed_and_best_raises_where_nothing_fits(self):
        plan = {"dpx_plan": 1, "model": "gpt2", "cluster": "8xh100", "seq": 1024, "micro_batch": 1, "strategy": "ddp", "dialect": "torch"}
        fits = dpx.evaluate(plan)
        self.assertEqual(list(fits)[0], "fits")
        best = fits.best()
        self.assertEqual((best.taken_bytes, best.step_s, best.gpus), (fits["memory"]["taken_bytes"], fits["time"]["step_s"], 8))
        self.assertEqual(best.plan, fits["plan"])
        lacks = dpx.evaluate({**plan, "model": "llama-3.1-405b"})
        self.assertIs(lacks["fits"], False)
        with self.assertRaises(dpx.NothingFits):
            lacks.best()
        swept = dpx.sweep({"nodes": [1, 2]}, plan=plan)
        self.assertEqual([p.at for p in swept.plans], [{"nodes": 1}, {"nodes": 2}])
        self.assertEqual(swept.plans[0].step_s, best.step_s)
        page = fits._repr_html_()
        self.assertEqual(page.count("<tr>"), 2)
        self.assertEqual(page.count("<rect"), sum(bool(fits["memory"].get(f"{k}_bytes")) for k in ("params", "grads", "optimizer", "activations", "temporaries", "buffers")))

    def test_every_answer_shows_itself(self):
        plan = {"dpx_plan": 1, "model": "gpt2", "cluster": "8xh100", "seq": 1024, "micro_batch": 1, "strategy": "ddp", "dialect": "torch"}
        asked = {"fit": dpx.fit("gpt2", "h100", "rtx4090"), "search": dpx.search("gpt2", "8xh100", 1024, 64, top=2), "evaluate": dpx.evaluate(plan),
                 "explain": dpx.explain(plan), "sweep": dpx.sweep({"nodes": [1, 2, 4]}, plan=plan), "bill": dpx.bill(plan, tokens="1T", price=2),
                 "limits": dpx.limits("8xh100", "gpt2", 1024, dialect="paper"), "phases": dpx.phases("demo/grpo.json")}
        drawn = {"search": 2, "evaluate": 1, "explain": 2, "sweep": 1}          # memory by category, over the step; speeds
        for name, answer in asked.items():
            page = answer._repr_html_()
            self.assertEqual(page.count("<svg"), drawn.get(name, 0), name)
            cells = re.findall("<td>(.*?)</td>", page)
            self.assertTrue(any(cells), f"{name} shows nothing: {page}")
            self.assertTrue(all(any(re.findall("<td>(.*?)</td>", row)) for row in page.split("<tr>")[2:]), f"{name}: an empty row")
        self.assertRegex(asked["fit"]._repr_html_(), "<td>1 x h100: ")
        heights = re.findall('cy="([0-9.]+)"', asked["sweep"]._repr_html_())
        speeds = [point["tokens_per_s"] for point in asked["sweep"]["points"]]
        self.assertEqual(heights, [f"{112 - 96 * speed / max(speeds):.1f}" for speed in speeds])
        self.assertEqual(asked["explain"]._repr_html_().split('points="')[1].split('"')[0].count(" ") + 1, len(asked["explain"]["memory_curve_bytes"]))

    @unittest.skipUnless(importlib.util.find_spec("pandas"), "no pandas")
    def test_a_sweep_is_a_frame(self):
        plan = {"dpx_plan": 1, "model": "gpt2", "cluster": "8xh100", "seq": 1024, "micro_batch": 1, "strategy": "ddp", "dialect": "torch"}
        frame = dpx.sweep({"nodes": [1, 2]}, plan=plan).to_frame()
        self.assertEqual(list(frame["nodes"]), [1, 2])
        self.assertTrue((frame["step_s"] > 0).all())
        frame = dpx.sweep({"gpu": ["h100", "a100"]}, plan=plan).to_frame()
        self.assertEqual(list(frame["gpu"]), ["h100", "a100"])
        for answer in dpx.fit("gpt2", "t4", "h100", seq=512, batch=4), dpx.search("gpt2", "8xh100", 1024, 64, top=2), dpx.evaluate(plan):
            frame = answer.to_frame()
            self.assertFalse(frame[[key for key in ("gpu", "label") if key in frame]].duplicated().any(), "rows that nothing tells apart")
            self.assertTrue(frame["gpu"].isin(["t4", "h100"]).all())

    def test_the_notebook_of_the_pages_runs(self):
        with open("docs/notebook.ipynb", encoding="utf-8") as file:
            cells = json.load(file)["cells"]
        names = {"__name__": "notebook"}
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        self.assertGreaterEqual(len(code), 5)
        for source in code:
            if all(importlib.util.find_spec(m) or f"to_{what}" not in source and f".{what}(" not in source for m, what in (("pandas", "frame"), ("matplotlib", "plot"))):
                exec(source, names)

    def test_everything_public_has_types_and_a_page(self):
        for name in dpx.__all__:
            thing = getattr(dpx, name)
            self.assertTrue(inspect.getdoc(thing), name)
            if inspect.isfunction(thing):
                types = typing.get_type_hints(thing)
                self.assertIn("return", types, name)
                for parameter in inspect.signature(thing).parameters:
                    self.assertIn(parameter, types, name)
        self.assertRegex(dpx.version(), r"^\d+\.\d+\.\d+")


if __name__ == "__main__":
    unittest.main()
