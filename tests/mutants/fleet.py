"""Mutants of a Flower fleet: what nodes keep between processes, and what leaves them; some need flwr."""

from __future__ import annotations

from importlib.util import find_spec

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

NODE = "tests/deployment/test_flower_node.py"
SEALED = "tests/deployment/test_sealed.py"
CLI = "tests/cli/test_flower.py"
CARRIER = "tests/engines/flower/test_carrier.py"

ANYWHERE = (
    of(
        "moved-state",
        "a state looks for its marks where they were before its folder was moved, and masks a round twice",
        ("deployment/flower/node_memory.py", "if origin != _origin(path.parent):", "if False:"),
        tests=f"{NODE}::test_a_state_in_a_folder_that_was_moved_is_forgotten_and_its_marks_are_not",
    ),
    of(
        "sent-before-sealed",
        "a process that cannot seal forgets what it sent, and its vector is out",
        (
            "deployment/flower/node_memory.py",
            "    _seal(key, path, _origin(folder) + ",
            "    with __import__('contextlib').suppress(OSError): _seal(key, path, _origin(folder) + ",
        ),
        tests=f"{NODE}::test_a_full_disk_lets_no_vector_out_and_its_charge_stays",
    ),
    of(
        "no-turns",
        "two processes of one node mask one round with two keys",
        ("deployment/flower/node_memory.py", "        hold(file.fileno(), wait=True)\n", ""),
        tests=f"{SEALED}::test_two_processes_of_one_node_take_turns",
    ),
    of(
        "plan-of-anybody",
        "whoever can write a file beside the keys says how much noise a node adds",
        (
            "deployment/flower/node_memory.py",
            "    except (InvalidTag, ValueError):\n        return None\n",
            "    except (InvalidTag, ValueError):\n        return pickle.dumps([])\n",
        ),
        tests=f"{SEALED}::test_a_state_of_another_experiment_or_key_or_with_another_byte_does_not_open",
    ),
    of(
        "plan-of-another-request",
        "a node takes the plan of another stage for its own",
        ("deployment/flower/node_memory.py", "            if asked == request:\n", "            if True:\n"),
        tests=f"{NODE}::test_a_kept_plan_is_that_of_its_own_request",
    ),
    of(
        "half-a-key",
        "a node that was killed while it made its key is stuck",
        ("deployment/flower/node_memory.py", "replace_file(path, os.urandom(_KEY), PRIVATE)", "path.touch(0o600)"),
        tests=f"{SEALED}::test_a_process_killed_while_it_makes_the_key_leaves_none",
    ),
    of(
        "false-is-true",
        'a node whose operator wrote simulate-randomness="false" takes its secrets from the seed',
        ("deployment/flower/node.py", "    if value not in (True, False) or", "    if False and"),
        tests=f"{NODE}::test_a_switch_is_nothing_else",
    ),
    of(
        "run-folder-is-sent",
        "the run folder lies in the app, and who took part is sent to every node",
        ("deployment/flower/folder.py", "if path.resolve().is_relative_to(folder.resolve()):", "if False:"),
        tests=CLI,
    ),
    of(
        "ballots-without-helper",
        "an app is written that nobody can play",
        ("config/privacy.py", 'if experiment.engine.name == "flower" and', "if False and"),
        tests=CLI,
    ),
)
FLOWER = (
    of(
        "words-of-a-record",
        "the words of an exception, which may hold a record, are sent to the server",
        ("deployment/flower/fleet.py", "            traceback.print_exc()\n", "            raise\n"),
        tests=CARRIER,
    ),
    of(
        "all-files-are-sent",
        "whatever is put into the app folder is sent to every node",
        ("deployment/flower/folder.py", "fab-include = [", "other = ["),
        tests=CARRIER,
    ),
    of(
        "pushed-once",
        "a request is lost when the SuperLink is away for a moment",
        ("deployment/flower/fleet.py", "self._waiting[place] = parts + self._waiting[place]", "pass"),
        tests=CARRIER,
    ),
    of(
        "hammered",
        "a SuperNode that fails is started every few seconds for ever",
        ("deployment/flower/fleet.py", "min(_LONGEST_PAUSE, 2 * self._pause.get(place, _ROLL_CALL / 2))", "0.0"),
        tests=CARRIER,
    ),
    of(
        "refused-for-ever",
        "a node whose operator has mended its file is not asked again",
        ("deployment/flower/fleet.py", "if kind_of(message) == Kind.REFUSAL:", "if False:"),
        tests=CARRIER,
    ),
    of(
        "anybody-moves-a-client",
        "a SuperNode that is not in the roster takes a client's place",
        (
            "deployment/flower/fleet.py",
            "  # its operator may mend it\n            return\n",
            "\n            came = __import__('types').SimpleNamespace(sender=0)\n",
        ),
        tests=CARRIER,
    ),
)
MUTANTS = ANYWHERE + (FLOWER if find_spec("flwr") is not None else ())
