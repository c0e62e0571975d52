/* The kernels for any processor (NEON is part of every 64-bit ARM), and which level this machine has. */
#if defined(__GNUC__) || defined(__clang__)
#define LEVEL 0
#include "kernels_units.h"

/* kernels.py compares it with its own, so that a library left over from other sources is not called. */
EXPORT int64_t sottovoce_job_size(void) { return (int64_t)sizeof(Job); }

EXPORT int sottovoce_supported(void) { return 1; }

/* How many losses are known: a library from before there were others than the cross entropies has no such function. */
EXPORT int sottovoce_losses(void) { return LOSSES; }

EXPORT int sottovoce_level(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                       __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw")
                   ? 2
                   : 1;
    }
#endif
    return 0;
}

#else /* not a compiler that this is written for: fast.py reads this and leaves the work to torch */

__declspec(dllexport) int sottovoce_supported(void) { return 0; }

#endif
