"""Build what is written in C when there is a compiler; without one sottovoce installs all the same."""

import os
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

CORE = Path("src/sottovoce/core")
MODELS = Path("src/sottovoce/models")
OPTIONS = ["-O3", "-std=c11", "-fvisibility=hidden", "-fno-math-errno"]


class AnyPythonExt(build_ext):
    """Build step whose library is named for no version of Python: ctypes loads it, it never touches Python."""

    def get_ext_filename(self, fullname):
        """Return the path of the library, without the version that Python would put into its name."""
        return os.path.join(*fullname.split(".")) + (".pyd" if os.name == "nt" else ".so")  # noqa: PTH118

    def run(self):
        """Build, and remove libraries with a version in their name, which Python would find first."""
        super().run()
        for stale in MODELS.glob("_kernels.*-*.so"):
            stale.unlink()


class AnyPythonWheel(bdist_wheel):
    """Wheel for one platform and every Python 3."""

    def get_tag(self):
        """Return the tag py3-none-<platform>."""
        return "py3", "none", super().get_tag()[2]


setup(
    cmdclass={"build_ext": AnyPythonExt, "bdist_wheel": AnyPythonWheel},
    ext_modules=[
        Extension(
            "sottovoce.models._kernels",
            [str(source) for source in sorted(MODELS.glob("kernels*.c"))],
            depends=[str(header) for header in sorted(MODELS.glob("*.h"))],
            # No -march: there is a file for each level of processors, and the processor is asked at run time.
            extra_compile_args=[*OPTIONS, "-ffp-contract=off"],
            libraries=[] if os.name == "nt" else ["m"],
            optional=True,
        ),
        Extension(
            "sottovoce.core._native",
            [str(source) for source in sorted(CORE.glob("native_*.c"))],
            depends=[str(header) for header in sorted(CORE.glob("*.h"))],
            # What is rounded, and when, is written in the sources: a compiler may fuse nothing on its own.
            extra_compile_args=[*OPTIONS, "-fno-trapping-math", "-ffp-contract=off"],
            libraries=[] if os.name == "nt" else ["m"],
            optional=True,
        ),
    ],
)
