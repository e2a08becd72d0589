"""How `python -m dpx.record` ends: lines for a person, or with --json one document; errors as the other programs have them."""
import json
import os
import sys


class Refused(Exception):
    """What was asked cannot be done: one line, and the exit status (2: the question is wrong; 1: the machine failed)."""

    def __init__(self, message, status=2):
        super().__init__(message)
        self.status = status


_document = None        # under --json: the file that the document is written to


def begin(words):
    global _document
    if "--json" in words:
        _document = sys.stdout


def alone():
    """Under --json a module's own prints go to standard error from here on: the document stands alone."""
    global _document
    if _document:
        _document = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)


def rests_on():
    """{"version", "frameworks"}: null is what is not there."""
    try:
        import dpx
        version = dpx.version()
    except (ImportError, AttributeError):
        version = None
    torch = sys.modules.get("torch")
    return {"version": version, "frameworks": {"torch": torch.__version__.partition("+")[0]} if torch else {}}


def give(found, lines):
    """Prints it, and returns the exit status."""
    try:
        if _document:
            print(json.dumps({"dpx": 1, **found, **rests_on()}, indent=2), file=_document, flush=True)
        else:
            print("\n".join(lines), flush=True)
    except OSError:
        print("dpx.record: cannot write to standard output", file=sys.stderr)
        return 1
    return 0


def refuse(error):
    """Says it, and returns the exit status."""
    print("dpx.record: %s" % error, file=sys.stderr)
    if _document:
        kind = "usage" if error.status == 2 else "failed"
        give({"error": {"status": error.status, "kind": kind, "messages": [str(error)]}}, [])
    return error.status
