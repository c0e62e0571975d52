/* The kernels for x86 processors with AVX2 and FMA. */
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define LEVEL 1
#define TARGET "avx2,fma"
#include "kernels_units.h"
#else
typedef int sottovoce_nothing_to_do; /* a file may not be empty */
#endif
