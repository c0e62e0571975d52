/* Every compiled function once, for one level of processors; a file for each level includes this one.
 *
 * They compute what the Python beside them says, to the bit: nothing is reordered and nothing contracted
 * (-ffp-contract=off), so every level and every compiler gives the same results. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define INLINE static inline __attribute__((always_inline))
#define JOINED(name, level) sottovoce_##name##_##level
#define EXPANDED(name, level) JOINED(name, level)
#define LEVEL_OF(name) EXPANDED(name, LEVEL)

/* Words in a payload may begin at any byte. */
typedef uint32_t loose32 __attribute__((aligned(1), may_alias));
typedef uint64_t loose64 __attribute__((aligned(1), may_alias));
typedef float loosefloat __attribute__((aligned(1), may_alias));

/* Bytes of a vector, where one is written down: AVX2's, or NEON's. */
#if defined(__x86_64__)
#define WIDE 32
#else
#define WIDE 16
#endif

/* The headers above are for any processor, what follows for this level. */
#if defined(TARGET) && defined(__clang__)
#define PRAGMA(words) _Pragma(#words)
#define TARGETED(options) PRAGMA(clang attribute push(__attribute__((target(options))), apply_to = function))
TARGETED(TARGET)
#elif defined(TARGET)
#define PRAGMA(words) _Pragma(#words)
#define TARGETED(options) PRAGMA(GCC target(options))
TARGETED(TARGET)
#endif

#include "native_bits.h"
#include "native_fronts.h"
#include "native_noise.h"
#include "native_rows.h"
#include "native_signs.h"
#include "native_transfers.h"
#include "native_transforms.h"

#include "native_study.h" /* it takes inner products */

#if defined(TARGET) && defined(__clang__)
#pragma clang attribute pop
#endif
