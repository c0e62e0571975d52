/* The kernels for x86 processors with AVX-512. */
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define LEVEL 2
#define TARGET "avx2,fma,avx512f,avx512vl,avx512dq,avx512bw"
#include "kernels_units.h"
#else
typedef int sottovoce_nothing_to_do; /* a file may not be empty */
#endif
