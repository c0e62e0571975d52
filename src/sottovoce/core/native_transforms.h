/* Sums and factors whose order and rounding are written down (schemes/dct.py, compressive.py, reconstruct.py). */

enum { DOT_LANES = 8, DOT_BLOCK = 32 };

/* Fill chunks, `padded` values each, with shuffled coordinates and zeros; an index of `dim` marks the end of a short
 * chunk. */
EXPORT void LEVEL_OF(gather)(const float *restrict update, int64_t dim, const uint32_t *restrict order, int64_t rows,
                             int64_t size, float *restrict chunks, int64_t padded)
{
    for (int64_t row = 0; row < rows; row++, order += size, chunks += padded) {
        for (int64_t place = 0; place < size - 1; place++)
            chunks[place] = update[order[place]];
        chunks[size - 1] = order[size - 1] < dim ? update[order[size - 1]] : 0.0f;
        memset(chunks + size, 0, (size_t)(padded - size) * sizeof *chunks);
    }
}

/* The inner product by DOT_BLOCK partial sums, whatever the processor: four times eight, added in pairs, then the upper
 * half to the lower down to one value. What is left over comes after that, one by one. Vectors, because a compiler would
 * keep an array of sums in memory. */
#define DOT(name, type, fused)                                                                                         \
    typedef type name##_lanes __attribute__((vector_size(WIDE), aligned(sizeof(type)), may_alias));                    \
                                                                                                                       \
    INLINE type name(const type *left, const type *right, int64_t count)                                               \
    {                                                                                                                  \
        enum { PER = WIDE / sizeof(type), VECTORS = DOT_BLOCK / PER };                                                 \
        name##_lanes sums[VECTORS];                                                                                    \
        type flat[DOT_BLOCK];                                                                                          \
        int64_t whole = count / DOT_BLOCK * DOT_BLOCK;                                                                 \
        for (int v = 0; v < VECTORS; v++)                                                                              \
            sums[v] = (name##_lanes){0};                                                                               \
        for (int64_t at = 0; at < whole; at += DOT_BLOCK)                                                              \
            for (int v = 0; v < VECTORS; v++) {                                                                        \
                name##_lanes x = *(const name##_lanes *)(left + at + v * PER);                                         \
                name##_lanes y = *(const name##_lanes *)(right + at + v * PER), z = sums[v];                           \
                for (int lane = 0; lane < PER; lane++)                                                                 \
                    z[lane] = fused(x[lane], y[lane], z[lane]);                                                        \
                sums[v] = z;                                                                                           \
            }                                                                                                          \
        memcpy(flat, sums, sizeof flat);                                                                               \
        for (int lane = 0; lane < DOT_LANES; lane++)                                                                   \
            flat[lane] = (flat[lane] + flat[DOT_LANES + lane]) +                                                       \
                         (flat[2 * DOT_LANES + lane] + flat[3 * DOT_LANES + lane]);                                    \
        for (int width = DOT_LANES / 2; width > 0; width /= 2)                                                         \
            for (int lane = 0; lane < width; lane++)                                                                   \
                flat[lane] += flat[width + lane];                                                                      \
        type total = flat[0];                                                                                          \
        for (int64_t at = whole; at < count; at++)                                                                     \
            total = fused(left[at], right[at], total);                                                                 \
        return total;                                                                                                  \
    }

DOT(dot_float, float, __builtin_fmaf)
DOT(dot_double, double, __builtin_fma)

/* A low-pass filter of which every `step`-th value is wanted; the signal is mirrored at both ends of its `length`. */
EXPORT void LEVEL_OF(filter)(const float *restrict values, int64_t count, int64_t length,
                                  const float *restrict taps, int64_t width, int64_t step, float *restrict thinned,
                                  int64_t wanted, float *restrict window)
{
    int64_t before = (width - step) / 2;
    for (int64_t index = 0; index < wanted; index++) {
        int64_t start = index * step - before;
        if (start >= 0 && start + width <= count) {
            thinned[index] = dot_float(values + start, taps, width);
            continue;
        }
        for (int64_t tap = 0; tap < width; tap++) {
            int64_t place = start + tap;
            if (place < 0)
                place = -1 - place;
            else if (2 * length - 1 - place < place)
                place = 2 * length - 1 - place;
            window[tap] = place < count ? values[place] : 0.0f;
        }
        thinned[index] = dot_float(window, taps, width);
    }
}

/* The upper Cholesky factor of a Toeplitz plus Hankel matrix, padded by the identity to `size`, a multiple of 4; then the
 * solution of M^T M z = x by it. */
#define FACTOR(suffix, type, fused, root, dot)                                                                         \
    INLINE void subtract_##suffix(type factor, const type *restrict x, type *restrict target, int64_t count)           \
    {                                                                                                                  \
        type negative = -factor;                                                                                       \
        for (int64_t i = 0; i < count; i++)                                                                            \
            target[i] = fused(negative, x[i], target[i]);                                                              \
    }                                                                                                                  \
                                                                                                                       \
    INLINE void subtract_four_##suffix(const type *restrict x0, const type *restrict x1, const type *restrict x2,      \
                                       const type *restrict x3, type *restrict t0, type *restrict t1,                  \
                                       type *restrict t2, type *restrict t3, int64_t count)                            \
    {                                                                                                                  \
        type a0 = -x0[0], a1 = -x1[0], a2 = -x2[0], a3 = -x3[0], b0 = -x0[1], b1 = -x1[1], b2 = -x2[1], b3 = -x3[1];    \
        type c0 = -x0[2], c1 = -x1[2], c2 = -x2[2], c3 = -x3[2], d0 = -x0[3], d1 = -x1[3], d2 = -x2[3], d3 = -x3[3];    \
        for (int64_t i = 0; i < count; i++) {                                                                          \
            type v0 = x0[i], v1 = x1[i], v2 = x2[i], v3 = x3[i];                                                       \
            t0[i] = fused(a3, v3, fused(a2, v2, fused(a1, v1, fused(a0, v0, t0[i]))));                                 \
            t1[i] = fused(b3, v3, fused(b2, v2, fused(b1, v1, fused(b0, v0, t1[i]))));                                 \
            t2[i] = fused(c3, v3, fused(c2, v2, fused(c1, v1, fused(c0, v0, t2[i]))));                                 \
            t3[i] = fused(d3, v3, fused(d2, v2, fused(d1, v1, fused(d0, v0, t3[i]))));                                 \
        }                                                                                                              \
    }                                                                                                                  \
                                                                                                                       \
    EXPORT void LEVEL_OF(factor_##suffix)(const type *restrict h, int64_t kept, type *m, int64_t size)            \
    {                                                                                                                  \
        for (int64_t i = 0; i < kept; i++) {                                                                           \
            type *row = m + i * size;                                                                                  \
            for (int64_t k = i; k < kept; k++)                                                                         \
                row[k] = h[k - i] + h[k + i];                                                                          \
            row[i] += 1;                                                                                               \
            for (int64_t k = kept; k < size; k++)                                                                      \
                row[k] = 0;                                                                                            \
        }                                                                                                              \
        type smaller = root((type)0.5);                                                                                \
        for (int64_t k = 0; k < size; k++)                                                                             \
            m[k] *= smaller;                                                                                           \
        m[0] = 1 + h[0];                                                                                               \
        for (int64_t i = kept; i < size; i++) {                                                                        \
            for (int64_t k = i; k < size; k++)                                                                         \
                m[i * size + k] = 0;                                                                                   \
            m[i * size + i] = 1;                                                                                       \
        }                                                                                                              \
        for (int64_t j = 0; j < size; j += 4) { /* four rows, and four earlier ones to take from them at a time */     \
            type *t = m + j * size + j;                                                                                \
            for (int64_t k = 0; k < j; k += 4) {                                                                       \
                const type *x = m + k * size + j;                                                                      \
                subtract_four_##suffix(x, x + size, x + 2 * size, x + 3 * size, t, t + size, t + 2 * size,             \
                                       t + 3 * size, size - j);                                                        \
            }                                                                                                          \
            for (int64_t c = j; c < j + 4; c++) {                                                                      \
                type *row = m + c * size + c;                                                                          \
                for (int64_t k = j; k < c; k++)                                                                        \
                    subtract_##suffix(m[k * size + c], m + k * size + c, row, size - c);                               \
                type pivot = root(row[0] > 1 ? row[0] : 1), inverse = 1 / pivot;                                       \
                for (int64_t i = 1; i < size - c; i++)                                                                 \
                    row[i] *= inverse;                                                                                 \
                row[0] = pivot;                                                                                        \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
                                                                                                                       \
    EXPORT void LEVEL_OF(substitute_##suffix)(const type *restrict m, int64_t size, type *restrict z,             \
                                                   int64_t count)                                                      \
    {                                                                                                                  \
        for (int64_t i = 0; i < count; i++) {                                                                          \
            z[i] /= m[i * size + i];                                                                                   \
            subtract_##suffix(z[i], m + i * size + i + 1, z + i + 1, count - i - 1);                                   \
        }                                                                                                              \
        for (int64_t i = count - 1; i >= 0; i--)                                                                       \
            z[i] = (z[i] - dot(m + i * size + i + 1, z + i + 1, count - i - 1)) / m[i * size + i];                     \
    }

FACTOR(float, float, __builtin_fmaf, sqrtf, dot_float)
FACTOR(double, double, __builtin_fma, sqrt, dot_double)
