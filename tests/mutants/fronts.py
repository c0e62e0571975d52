"""Mutants of public fronts: whose records they see, which numbers a client uses, and what must not move."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

RUNS = "tests/assembly/test_fronts.py"
FRONTS = "tests/models/fronts"
COMPARED = (
    "assembly/model.py",
    '    check_no_client(experiment, "[model] projection.source", source, public, dataset)\n',
    "",
)

KEPT = "tests/models/test_features.py"

MUTANTS = (
    of(
        "features-for-everybody",
        "what a front makes of clients' records is readable by every user of the machine",
        ("models/features.py", "replacing(file, PRIVATE)", "replacing(file, 0o644)"),
        tests=KEPT,
    ),
    of(
        "features-of-other-code",
        "a run trains on features that an earlier version computed",
        ("models/features.py", "hashlib.blake2b(key + _code(), ", "hashlib.blake2b(key, "),
        tests=KEPT,
    ),
    of(
        "features-not-checked",
        "a damaged file of features is trained on",
        ("models/features.py", "or found[:_DIGEST].tobytes() != _check(body.data)", ""),
        tests=KEPT,
    ),
    of(
        "front-fitted-on-the-clients",
        "the projection is measured on the records that epsilon should protect",
        ("assembly/public.py", "not may_mix(experiment) and is_clients(source, experiment):", "False:"),
        COMPARED,
        tests=f"{RUNS}::test_a_projection_from_the_clients_own_records_is_refused_in_a_private_run",
    ),
    of(
        "front-fitted-on-the-clients-by-path",
        "the clients' file under another spelling passes for public",
        (
            "assembly/public.py",
            "origin(source, table.folder).same_as(origin(table.source, table.folder))",
            "source == table.source",
        ),
        COMPARED,
        tests=f"{RUNS}::test_a_projection_from_the_clients_own_records_is_refused_in_a_private_run",
    ),
    of(
        "front-that-mixes-clients",
        "a user's function puts one client's records into another's features",
        ("models/fronts/own.py", "if not np.allclose(together, alone", "if False and not np.allclose(together, alone"),
        tests=f"{FRONTS}/test_own.py",
    ),
    of(
        "front-of-another-set-up",
        "a client trains on features that nobody announced",
        ("models/fronted.py", "if payload[: len(mine)] != mine:", "if len(payload) < 0:"),
        tests="tests/models/test_fronted.py",
    ),
    of(
        "layers-of-another-set-up",
        "server and client disagree on what a coordinate is",
        ("models/partial.py", "if payload[: len(mine)] != mine:", "if len(payload) < 0:"),
        tests="tests/models/test_partial.py",
    ),
    of(
        "axes-used-before-they-travel",
        "the server's features are not those of the clients",
        (
            "models/fronts/projection.py",
            ".astype(np.float16).astype(np.float32), largest",
            ".astype(np.float32), largest",
        ),
        tests=f"{FRONTS}/test_projection.py {FRONTS}/test_scattering.py",
    ),
    of(
        "front-fitted-again-on-resume",
        "the second half of a run trains on other features than the first",
        ("runs/loop.py", "parts = gather(experiment, given, front)", "parts = gather(experiment, given)"),
        tests=f"{RUNS}::test_a_resumed_run_goes_on_with_the_numbers_that_were_sent",
    ),
    of(
        "frozen-layers-train",
        "clients move weights that never travel",
        ("models/partial.py", "mask = np.zeros(dim", "mask = np.ones(self.part.network.dim"),
        tests="tests/models/test_partial.py",
    ),
    of(
        "set-up-without-the-front",
        "the numbers of the front reach nobody, and are not counted",
        ("models/fronted.py", "return self._public_payload() + self.model", "return self.model"),
        tests=f"{RUNS}::test_a_run_behind_a_front_learns_and_tells_what_the_front_is tests/models/test_fronted.py",
    ),
    of(
        "axes-weigh-by-their-largest-value",
        "features have another variance than the docstring says",
        ("models/fronts/projection.py", "factor = np.sqrt(largest) * ", "factor = "),
        tests=f"{FRONTS}/test_projection.py",
    ),
    of(
        "waves-see-a-grey-wall",
        "brightness leaks into every channel",
        ("models/fronts/filters.py", "wave - window * (wave.sum() / window.sum())", "wave"),
        tests=f"{FRONTS}",
    ),
    of(
        "half-images-unblurred",
        "the fast scattering is not the one that the docstring describes",
        (
            "core/native_fronts.h",
            "thin(first, height, width, halves, second, line);",
            "thin(first, height, width, halves, third, line);",
        ),
        tests="tests/models/test_arm.py",
    ),
    of(
        "gabor-fills-the-head",
        "what the front fills and what trains overlap",
        ("models/fronts/gabor.py", '"0.bias", "2.bias", "5.bias")', '"0.bias", "2.bias", "5.bias", "6.kernel")'),
        tests=f"{FRONTS}/test_gabor.py",
    ),
    of(
        "leaves-in-other-units",
        "public images are sixteen times as bright as the clients'",
        (
            "assembly/public.py",
            "records=records, seed=seed, input_scale=dataset.input_scale)",
            "records=records, seed=seed)",
        ),
        tests=f"{RUNS}::test_leaves_are_public_records_for_a_scheme_that_chooses_coordinates",
    ),
    of(
        "kept-features-of-another-front",
        "a later run of a sweep trains on features that its clients were not told of",
        ("models/fronted.py", "        digest.update(self._public_payload())\n", ""),
        tests="tests/models/test_features.py",
    ),
    of(
        "kept-features-of-other-records",
        "a later run of a sweep trains on records of another data set",
        ("models/features.py", "    digest.update(np.ascontiguousarray(x).data)\n", ""),
        tests="tests/models/test_features.py",
    ),
    of(
        "encoder-of-another-set-up",
        "a node trains on the features of another network than the one that the server named",
        ("models/fronts/encoder.py", "        if theirs != mine:\n", "        if not theirs:\n"),
        tests=f"{FRONTS}/test_encoder.py",
    ),
    of(
        "encoder-digest-not-compared",
        "a file is run that is not the one of the experiment",
        (
            "models/fronts/encoder.py",
            "    if asked not in (None, found):\n",
            "    if False and asked not in (None, found):\n",
        ),
        tests=f"{FRONTS}/test_encoder.py",
    ),
    of(
        "weights-that-run-code",
        "a file of weights runs a program on every node that reads it",
        (
            "models/fronts/pretrained.py",
            "        if (module, name) not in known:\n",
            "        if (module, name) not in known:\n"
            "            return super().find_class(module, name)\n        if 0:\n",
        ),
        tests=f"{FRONTS}/test_encoder.py",
    ),
)
