"""Build the fast path's kernels when there is a compiler; without one sottovoce installs all the same."""

from pathlib import Path

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "sottovoce.models._kernels",
            ["src/sottovoce/models/kernels.c"],
            depends=[str(header) for header in sorted(Path("src/sottovoce/models").glob("*.h"))],
            # No -march: the code asks for AVX2 function by function and the processor is asked at run time.
            extra_compile_args=["-O3", "-std=c11", "-fvisibility=hidden", "-fno-math-errno"],
            optional=True,
        )
    ]
)
