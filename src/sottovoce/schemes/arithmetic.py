"""Arithmetic for compiled kernels that rounds alike on every processor.

`fastmath` lets the compiler reorder a sum to fit the vectors of the processor at hand: 16 partial sums with AVX-512, 8
with AVX2, 4 with SSE, and a product rounded before it is added where there is no FMA. The results differ in their last
bits, and over many rounds of training these grow into visible differences. So the order of every sum is fixed here.
"""

from __future__ import annotations

from typing import Any, Final

from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.core import cgutils as untyped_builders
from numba.core.errors import TypingError
from numba.extending import intrinsic

__all__ = ["dot", "fma"]

cgutils: Any = untyped_builders

LANES: Final = 8
BLOCK: Final = 4 * LANES
_INT: Final = ir.IntType(32)


def _fma(typing: Any, a: Any, b: Any, c: Any) -> Any:
    """Return a * b + c, rounded once; a processor without FMA gets the same bits from a slow function."""
    return c(c, c, c), lambda context, builder, signature, arguments: builder.fma(*arguments)


fma: Any = intrinsic(_fma)


def _sum_of_blocks(typing: Any, left: Any, right: Any, blocks: Any) -> Any:
    """Return the sum of left * right over the first `blocks` times BLOCK values of two contiguous vectors."""
    if left.dtype != right.dtype or any((kind.ndim, kind.layout) != (1, "C") for kind in (left, right)):
        raise TypingError(f"dot takes two contiguous vectors of one type, got {left} and {right}")

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        lanes, bits = ir.VectorType(context.get_value_type(left.dtype), LANES), left.dtype.bitwidth
        kind = ir.FunctionType(lanes, (lanes, lanes, lanes))
        multiply_add = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{LANES}f{bits}")
        vectors = zip((left, right), arguments[:2], strict=True)
        data = [context.make_array(of)(context, builder, value).data for of, value in vectors]
        sums = [cgutils.alloca_once_value(builder, ir.Constant(lanes, None)) for _ in range(BLOCK // LANES)]
        with cgutils.for_range(builder, arguments[2]) as loop:
            for place, total in enumerate(sums):
                at = builder.add(builder.mul(loop.index, loop.index.type(BLOCK)), loop.index.type(LANES * place))
                x, y = (
                    # A vector may begin anywhere, so it is aligned as one value is.
                    builder.load(builder.bitcast(builder.gep(values, [at]), lanes.as_pointer()), align=bits // 8)
                    for values in data
                )
                builder.store(builder.call(multiply_add, (x, y, builder.load(total))), total)
        rest = [builder.load(total) for total in sums]
        while len(rest) > 1:
            rest = [builder.fadd(x, y) for x, y in zip(rest[::2], rest[1::2], strict=True)]
        total, width = rest[0], LANES
        while width > 1:  # the upper half is added to the lower, down to one value
            width //= 2
            halves = [ir.Constant(ir.VectorType(_INT, width), list(range(at, at + width))) for at in (0, width)]
            total = builder.fadd(*(builder.shuffle_vector(total, total, half) for half in halves))
        return builder.extract_element(total, _INT(0))

    return left.dtype(left, right, types.intp), generate


_whole_blocks: Any = intrinsic(_sum_of_blocks)


@njit(nogil=True, cache=True, forceinline=True)
def dot(left, right):  # type: ignore[no-untyped-def]
    """Return the inner product of two contiguous vectors, by BLOCK partial sums whatever the processor."""
    blocks = left.size // BLOCK
    total = _whole_blocks(left, right, blocks)
    for k in range(BLOCK * blocks, left.size):
        total = fma(left[k], right[k], total)
    return total
