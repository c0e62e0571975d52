/* Eight floats side by side, in the compiler's own vectors: one of AVX, two of NEON or SSE, and plain loops where the
 * compiler has none. All sums that cross a vector are written for eight, so every processor adds in the same order; with
 * FMA (AVX2, 64-bit ARM) it also rounds the same. A line is sixteen floats: one vector of AVX-512, else two of eight. Its
 * lanes are never added to each other, so how it is cut changes no bit. */
#ifndef SOTTOVOCE_VECTOR_H
#define SOTTOVOCE_VECTOR_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__aarch64__)
#include <arm_neon.h>
#elif defined(__x86_64__)
#include <immintrin.h>
#endif

/* The headers above are for any processor, what follows for this level. */
#if defined(TARGET)
#define PRAGMA(words) _Pragma(#words)
#if defined(__clang__)
#define TARGETED(options) PRAGMA(clang attribute push(__attribute__((target(options))), apply_to = function))
#else
#define TARGETED(options) PRAGMA(GCC target(options))
#endif
TARGETED(TARGET)
#endif

#define EXPORT __attribute__((visibility("default")))
#define TEMPLATE static inline __attribute__((always_inline))
#define JOINED(name, level) sottovoce_##name##_##level
#define EXPANDED(name, level) JOINED(name, level)
#define LEVEL_OF(name) EXPANDED(name, LEVEL)

#if defined(__x86_64__) && LEVEL > 0
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif
enum { PARTS = 8 / LANES, BYTES = 4 * LANES };

typedef float Part __attribute__((vector_size(BYTES)));
typedef float LoosePart __attribute__((vector_size(BYTES), aligned(4), may_alias));
typedef int32_t Mask __attribute__((vector_size(BYTES))); /* -1 or 0 in each lane */
typedef int32_t LooseMask __attribute__((vector_size(BYTES), aligned(4), may_alias));
typedef uint8_t Small __attribute__((vector_size(LANES)));
typedef uint8_t LooseSmall __attribute__((vector_size(LANES), aligned(1), may_alias));

#if defined(__x86_64__) && LEVEL > 0
typedef Part Vector;
#define PART(v, i) (v)
#else
typedef struct {
    Part part[PARTS];
} Vector;
#define PART(v, i) ((v).part[i])
#endif

TEMPLATE Part part_of(const float *from) { return *(const LoosePart *)from; }

TEMPLATE void put_part(float *to, Part part) { *(LoosePart *)to = part; }

/* a * b + c, rounded once where the processor can. */
TEMPLATE Part fused_part(Part a, Part b, Part c) {
#if defined(__x86_64__) && LEVEL > 0
    return __builtin_ia32_vfmaddps256(a, b, c); /* not a * b + c: some compilers leave chains of these unfused */
#elif defined(__aarch64__)
    return vfmaq_f32(c, a, b);
#else
    return a * b + c;
#endif
}

TEMPLATE Part select_part(Mask mask, Part yes, Part no) {
#if defined(__x86_64__) && LEVEL > 0
    return __builtin_ia32_blendvps256(no, yes, (Part)mask);
#else
    return (Part)((mask & (Mask)yes) | (~mask & (Mask)no));
#endif
}

#define EACH_PART for (int i = 0; i < PARTS; i++)

TEMPLATE Vector load(const float *from) {
    Vector v;
    EACH_PART PART(v, i) = part_of(from + i * LANES);
    return v;
}

TEMPLATE void store(float *to, Vector v) { EACH_PART put_part(to + i * LANES, PART(v, i)); }

TEMPLATE Part all_part(float value) {
#if defined(__x86_64__) && LEVEL > 0
    return (Part){value, value, value, value, value, value, value, value};
#else
    return (Part){value, value, value, value};
#endif
}

TEMPLATE Vector all(float value) {
    Vector v;
    EACH_PART PART(v, i) = all_part(value);
    return v;
}

TEMPLATE Vector plus(Vector a, Vector b) {
    EACH_PART PART(a, i) = PART(a, i) + PART(b, i);
    return a;
}

TEMPLATE Vector minus(Vector a, Vector b) {
    EACH_PART PART(a, i) = PART(a, i) - PART(b, i);
    return a;
}

TEMPLATE Vector times(Vector a, Vector b) {
    EACH_PART PART(a, i) = PART(a, i) * PART(b, i);
    return a;
}

TEMPLATE Vector fused(Vector a, Vector b, Vector c) {
    EACH_PART PART(c, i) = fused_part(PART(a, i), PART(b, i), PART(c, i));
    return c;
}

/* Zero where a value is negative; NaN goes through. */
TEMPLATE Vector rectified(Vector v) {
    EACH_PART PART(v, i) = (Part)(~(Mask)(PART(v, i) < all_part(0)) & (Mask)PART(v, i));
    return v;
}

TEMPLATE Vector masked(Vector v, const uint32_t *mask) {
    if (mask) {
        EACH_PART PART(v, i) = (Part)((Mask)PART(v, i) & *(const LooseMask *)(mask + i * LANES));
    }
    return v;
}

#if defined(__x86_64__) && LEVEL == 2
typedef __m512 Line;

TEMPLATE Line line_of(const float *from) { return _mm512_loadu_ps(from); }

TEMPLATE void put_line(float *to, Line line) { _mm512_storeu_ps(to, line); }

TEMPLATE Line line_all(float value) { return _mm512_set1_ps(value); }

TEMPLATE Line line_plus(Line a, Line b) { return a + b; }

TEMPLATE Line line_minus(Line a, Line b) { return a - b; }

TEMPLATE Line line_times(Line a, Line b) { return a * b; }

TEMPLATE Line line_fused(Line a, Line b, Line c) { return _mm512_fmadd_ps(a, b, c); }

TEMPLATE Line line_masked(Line line, const uint32_t *mask) {
    return mask ? (Line)((__m512i)line & _mm512_loadu_si512(mask)) : line;
}
#else
typedef struct {
    Vector low, high;
} Line;

TEMPLATE Line line_of(const float *from) { return (Line){load(from), load(from + 8)}; }

TEMPLATE void put_line(float *to, Line line) {
    store(to, line.low);
    store(to + 8, line.high);
}

TEMPLATE Line line_all(float value) { return (Line){all(value), all(value)}; }

TEMPLATE Line line_plus(Line a, Line b) { return (Line){plus(a.low, b.low), plus(a.high, b.high)}; }

TEMPLATE Line line_minus(Line a, Line b) { return (Line){minus(a.low, b.low), minus(a.high, b.high)}; }

TEMPLATE Line line_times(Line a, Line b) { return (Line){times(a.low, b.low), times(a.high, b.high)}; }

TEMPLATE Line line_fused(Line a, Line b, Line c) {
    return (Line){fused(a.low, b.low, c.low), fused(a.high, b.high, c.high)};
}

TEMPLATE Line line_masked(Line line, const uint32_t *mask) {
    if (mask) line = (Line){masked(line.low, mask), masked(line.high, mask + 8)};
    return line;
}
#endif

/* The sum: the upper half to the lower, down to one value. */
TEMPLATE float total(Vector v) {
    typedef float Half __attribute__((vector_size(16)));
    Half low, high;
    memcpy(&low, &v, sizeof low);
    memcpy(&high, (const char *)&v + sizeof low, sizeof high);
    low += high;
#if defined(__clang__)
    low += __builtin_shufflevector(low, low, 2, 3, 2, 3);
#else
    typedef int32_t Places __attribute__((vector_size(16)));
    low += __builtin_shuffle(low, (Places){2, 3, 2, 3});
#endif
    return low[0] + low[1];
}

/* One bit for each lane whose mask is set. */
TEMPLATE unsigned bits_of(Mask mask) {
#if defined(__x86_64__) && LEVEL > 0
    return (unsigned)__builtin_ia32_movmskps256((Part)mask);
#else
    unsigned bits = 0;
    for (int lane = 0; lane < LANES; lane++) bits |= ((unsigned)mask[lane] & 1u) << lane;
    return bits;
#endif
}

#endif
