/* For x86 processors with AVX2 and FMA. */
#if defined(__x86_64__)
#define LEVEL 1
#define TARGET "avx2,fma,bmi,bmi2"
#include "native.h"
#else
typedef int sottovoce_nothing_to_do; /* a file may not be empty */
#endif
