"""What a recorder runs in a process of its own: process groups, meshes and patches of one case would be found by the next."""
import multiprocessing
import traceback


def alone(run, *args):
    """run(*args) in a child: its result, or RuntimeError with the child's traceback."""
    ours, theirs = multiprocessing.Pipe(duplex=False)

    def child():
        try:
            theirs.send((None, run(*args)))
        except Exception:
            theirs.send((traceback.format_exc(), None))

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    theirs.close()
    try:
        error, result = ours.recv()
    except EOFError:
        error, result = "died", None
    process.join()
    if error:
        raise RuntimeError(error)
    return result
