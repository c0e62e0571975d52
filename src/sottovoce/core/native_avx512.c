/* For x86 processors with AVX-512. */
#if defined(__x86_64__)
#define LEVEL 2
#define TARGET "avx2,fma,bmi,bmi2,avx512f,avx512vl,avx512dq,avx512bw"
#include "native.h"
#else
typedef int sottovoce_nothing_to_do; /* a file may not be empty */
#endif
