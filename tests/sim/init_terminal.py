"""dpxplan init on a terminal: answers its questions, one for each text that it prints, and shows all that it said.
init_terminal.py PROGRAM PLAN ANSWER..."""
import os
import pty
import sys

program, plan, *answers = sys.argv[1:]
child, terminal = pty.fork()
if child == 0:
    os.execv(program, [program, "init", "-o", plan])
said = b""
while True:
    try:
        part = os.read(terminal, 4096)
    except OSError:         # Linux: the other end is closed
        break
    if not part:
        break
    said += part
    if part.endswith(b"]: ") and answers:
        os.write(terminal, answers.pop(0).encode() + b"\n")
sys.stdout.write(said.decode().replace("\r", ""))
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
