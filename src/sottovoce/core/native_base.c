/* For any processor; NEON is part of every 64-bit ARM. And which level this machine has. */
#define LEVEL 0
#include "native.h"

EXPORT int32_t sottovoce_native_version(void) { return 1; } /* as VERSION in native.py */

EXPORT int32_t sottovoce_native_level(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2")) {
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw"))
            return 2;
        return 1;
    }
#endif
    return 0;
}
