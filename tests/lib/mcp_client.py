"""A scripted client of `dpxplan mcp`: PROGRAM DEMO_PLAN.  Prints what is wrong; nothing where all is right."""

import json
import subprocess
import sys

TYPES = {"boolean": bool, "object": dict, "array": list, "string": str, "number": (int, float)}


class Server:
    def __init__(self, program):
        self.process = subprocess.Popen([program, "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.next = 0

    def raw(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def ask(self, method, params=None):
        self.next += 1
        answer = self.raw(json.dumps({"jsonrpc": "2.0", "id": self.next, "method": method, **({"params": params} if params is not None else {})}))
        expect(answer["jsonrpc"] == "2.0" and answer["id"] == self.next, f"{method}: {answer}")
        return answer

    def tool(self, name, arguments):
        return self.ask("tools/call", {"name": name, "arguments": arguments})["result"]

    def tell(self, method):
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", "method": method}) + "\n")


def peak_kib(server):
    with open(f"/proc/{server.process.pid}/status") as f:
        return int(next(line for line in f if line.startswith("VmHWM")).split()[1])


def expect(holds, what):
    if not holds:
        print(what)


def follows(schema, arguments):
    """Do arguments keep to a tool's schema?"""
    properties = schema["properties"]
    return set(schema["required"]) <= set(arguments) and all(
        key in properties and any(isinstance(value, TYPES[t]) for t in properties[key]["type"]) if isinstance(properties.get(key, {}).get("type"), list)
        else isinstance(value, TYPES[properties[key]["type"]]) for key, value in arguments.items())


def questions(plan):
    yield "fit", {"model": "gpt2", "gpu": ["h100"]}
    yield "search", {"model": "gpt2", "cluster": "8xh100", "seq": 1024, "global_batch": 64}
    yield "evaluate", {"plan": plan, "set": {"nodes": 2}}
    yield "explain", {"plan": plan}
    yield "sweep", {"plan": plan, "over": {"nodes": [1, 2]}}
    yield "bill", {"plan": plan, "tokens": "1T", "mtbf": "llama3", "storage": "5GB/s"}
    yield "phases", {"file": "demo/grpo.json"}
    yield "limits", {"model": "gpt2", "cluster": "8xh100", "seq": 1024}
    yield "export", {"plan": plan, "to": "torchtitan"}
    yield "list", {"what": "gpus"}


def main(program, plan):
    server = Server(program)
    for asked, given in (("2025-03-26", "2025-03-26"), ("2024-11-05", "2024-11-05"), ("1999-01-01", "2025-06-18")):
        result = server.ask("initialize", {"protocolVersion": asked, "capabilities": {}, "clientInfo": {"name": "test", "version": "0"}})["result"]
        expect(result["protocolVersion"] == given and "tools" in result["capabilities"], f"initialize: {result}")
    server.tell("notifications/initialized")
    expect(server.ask("ping")["result"] == {}, "ping")
    tools = {tool["name"]: tool for tool in server.ask("tools/list")["result"]["tools"]}
    for name, arguments in questions(plan):
        expect(follows(tools[name]["inputSchema"], arguments), f"{name}: the schema does not take {arguments}")
        result = server.tool(name, arguments)
        text = result["content"][0]["text"]
        expect(not result["isError"], f"{name}: {text}")
        expect(json.loads(text) == result["structuredContent"], f"{name}: text and document differ")
    nothing = server.tool("evaluate", {"plan": plan, "set": {"model": "llama-3.1-405b"}})
    expect(not nothing["isError"] and nothing["structuredContent"]["fits"] is False, "a plan that does not fit is an answer")
    for arguments, said in (({"modle": "gpt2"}, "did you mean"), ({"model": "gpt2", "gpu": 5}, "gpu"), ({}, "model")):
        result = server.tool("fit", arguments)
        expect(result["isError"] and said in result["content"][0]["text"], f"fit {arguments}: {result}")
    for path in ("/dev/stdin", "/dev/fd/0", "/proc/self/fd/0", f"/proc/{server.process.pid}/fd/0", "-"):       # its requests are there
        result = server.tool("fit", {"model": path})
        expect(result["isError"] and "give the document itself" in result["content"][0]["text"], f"fit of {path}: {result}")
    expect(server.raw('{"jsonrpc": "2.0", "id": {}, "method": "ping"}')["error"]["code"] == -32600, "an id that is none")
    expect(server.ask("tools/call", {"name": "rm"})["error"]["code"] == -32602, "an unknown tool")
    expect(server.ask("tools/call", {"name": "fit", "arguments": 3})["error"]["code"] == -32602, "arguments that are no object")
    expect(server.ask("resources/list")["error"]["code"] == -32601, "an unknown method")
    expect(server.raw("}")["error"]["code"] == -32700, "what is no JSON")
    for line in ("\0", '\0{"jsonrpc": "2.0", "id": 1, "method": "ping"}', '{"jsonrpc": "2.0", "id": 1, "method": "ping"}\0'):
        expect(server.raw(line)["error"]["code"] == -32700, f"a byte that is 0 in {line!r}")
    expect(server.raw("[]")["error"]["code"] == -32600, "a batch")
    held = peak_kib(server)
    long = server.raw("x" * (192 << 20))                # three times the most: it is passed over as it comes
    expect(long["error"]["code"] == -32600 and "64 MiB" in long["error"]["message"], f"a line of 192 MiB: {long}")
    expect(peak_kib(server) - held < 160 << 10, f"a line of 192 MiB took {peak_kib(server) - held} KiB")
    expect(server.ask("ping")["result"] == {}, "ping behind it")
    server.process.stdin.close()
    expect(server.process.wait(10) == 0 and not server.process.stdout.read() and not server.process.stderr.read(), "the end of its input ends it")


main(*sys.argv[1:])
