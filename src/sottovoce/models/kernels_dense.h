/* Multiply dense matrices, and step dense weights. */
#ifndef SOTTOVOCE_DENSE_H
#define SOTTOVOCE_DENSE_H

#include "kernels_shapes.h"

/* `rows` x (16 * lines) of a product; line l of a row of weights is l * apart further, and 16 l in the result. */
TEMPLATE void tile(const int rows, const int lines, const float *const *a, ptrdiff_t shift, int segments,
                   ptrdiff_t segment, int length, const float *w, ptrdiff_t w_stride, ptrdiff_t apart, float *c,
                   ptrdiff_t c_stride, int add) {
    Line sum[TILE][LINES];
    const float *from[TILE];
    for (int r = 0; r < rows; r++) {
        for (int l = 0; l < lines; l++) sum[r][l] = line_all(0);
        from[r] = a[r] + shift;
    }
    for (int s = 0; s < segments; s++) {
        for (int k = 0; k < length; k++, w += w_stride) {
            Line weight[LINES];
            for (int l = 0; l < lines; l++) weight[l] = line_of(w + l * apart);
            for (int r = 0; r < rows; r++) {
                const Line v = line_all(from[r][k]);
                for (int l = 0; l < lines; l++) sum[r][l] = line_fused(v, weight[l], sum[r][l]);
            }
        }
        for (int r = 0; r < rows; r++) from[r] += segment;
    }
    for (int r = 0; r < rows; r++, c += c_stride) {
        for (int l = 0; l < lines; l++) {
            put_line(c + 16 * l, add ? line_plus(sum[r][l], line_of(c + 16 * l)) : sum[r][l]);
        }
    }
}

TEMPLATE void tiles(const int lines, const float *const *a, int rows, ptrdiff_t shift, int segments, ptrdiff_t segment,
                    int length, const float *w, ptrdiff_t w_stride, ptrdiff_t apart, float *c, ptrdiff_t c_stride,
                    int add) {
    for (; rows >= TILE; rows -= TILE, a += TILE, c += TILE * c_stride) {
        tile(TILE, lines, a, shift, segments, segment, length, w, w_stride, apart, c, c_stride, add);
    }
    switch (rows) {
#define CASE(R) \
    case R: tile(R, lines, a, shift, segments, segment, length, w, w_stride, apart, c, c_stride, add); break;
        CASE(1) CASE(2) CASE(3) CASE(4) CASE(5)
#undef CASE
    default: break;
    }
}

/* c[r] (+)= sum over segments and k of a[r][shift + segment s + k] * w[s, k], `lines` times 16 columns wide. */
static void product(int lines, const float *const *a, int rows, ptrdiff_t shift, int segments, ptrdiff_t segment,
                    int length, const float *w, ptrdiff_t w_stride, ptrdiff_t apart, float *c, ptrdiff_t c_stride,
                    int add) {
    for (; lines >= LINES; lines -= LINES, w += LINES * apart, c += LINES * 16) {
        tiles(LINES, a, rows, shift, segments, segment, length, w, w_stride, apart, c, c_stride, add);
    }
    if (lines) tiles(1, a, rows, shift, segments, segment, length, w, w_stride, apart, c, c_stride, add);
}

/* c = a @ w for w in panels; the depth is cut so that a piece of a panel stays in the first-level cache. */
static void multiply(const float *const *a, int rows, int depth, const float *panel, int panels, float *c,
                          ptrdiff_t c_stride) {
    const ptrdiff_t apart = (ptrdiff_t)depth * 16;
    for (int k = 0; k < depth; k += DEPTH) {
        product(panels, a, rows, k, 1, 0, smaller(DEPTH, depth - k), panel + (ptrdiff_t)k * 16, 16, apart, c, c_stride,
                k > 0);
    }
}

TEMPLATE void dots_tile(const int m, const int n, const float *a, const float *b, ptrdiff_t stride, float factor,
                        float *c, ptrdiff_t c_stride) {
    Vector sum[2][4];
    for (int i = 0; i < m; i++) {
        for (int j = 0; j < n; j++) sum[i][j] = all(0);
    }
    for (ptrdiff_t k = 0; k < stride; k += 8) {
        for (int j = 0; j < n; j++) {
            const Vector v = load(b + j * stride + k);
            for (int i = 0; i < m; i++) {
                sum[i][j] = fused(load(a + i * stride + k), v, sum[i][j]);
            }
        }
    }
    for (int i = 0; i < m; i++) {
        for (int j = 0; j < n; j++) c[i * c_stride + j] = factor * total(sum[i][j]);
    }
}

/* c[i][j] = factor * <a_i, b_j>; rows are `stride` long, their padding is zero. */
static void dots(const float *a, int m, const float *b, int n, ptrdiff_t stride, float factor, float *c) {
    for (int i = 0; i < m; i += 2) {
        const int pair = i + 1 < m;
        int j = 0;
        for (; j + 4 <= n; j += 4) {
            if (pair) {
                dots_tile(2, 4, a + i * stride, b + j * stride, stride, factor, c + (ptrdiff_t)i * n + j, n);
            } else {
                dots_tile(1, 4, a + i * stride, b + j * stride, stride, factor, c + (ptrdiff_t)i * n + j, n);
            }
        }
        for (; j < n; j++) {
            dots_tile(1, 1, a + i * stride, b + j * stride, stride, factor, c + (ptrdiff_t)i * n + j, n);
            if (pair) {
                dots_tile(1, 1, a + (i + 1) * stride, b + j * stride, stride, factor, c + (ptrdiff_t)(i + 1) * n + j, n);
            }
        }
    }
}

/* sum = the `rows` x (16 * lines) tile of x^T g; a line of g is `apart` after the one before. */
TEMPLATE void outer(const int rows, const int lines, int depth, const float *x, ptrdiff_t x_stride, const float *g,
                    ptrdiff_t g_stride, ptrdiff_t apart, Line sum[][LINES]) {
    for (int r = 0; r < rows; r++) {
        for (int l = 0; l < lines; l++) sum[r][l] = line_all(0);
    }
    for (int k = 0; k < depth; k++, x += x_stride, g += g_stride) {
        Line line[LINES];
        for (int l = 0; l < lines; l++) line[l] = line_of(g + l * apart);
        for (int r = 0; r < rows; r++) {
            const Line v = line_all(x[r]);
            for (int l = 0; l < lines; l++) sum[r][l] = line_fused(v, line[l], sum[r][l]);
        }
    }
}

TEMPLATE void step_line(float *sum, const float *first, float *now, Line gradient, Line rate) {
    const Line s = line_fused(rate, gradient, line_of(sum));
    put_line(sum, s);
    put_line(now, line_plus(line_of(first), s));
}

TEMPLATE void step_vector(float *sum, const float *first, float *now, Vector gradient, Vector rate) {
    const Vector s = fused(rate, gradient, load(sum));
    store(sum, s);
    store(now, plus(load(first), s));
}

TEMPLATE void step_tile(const int rows, int depth, const float *x, ptrdiff_t x_stride, const float *g,
                        ptrdiff_t g_stride, int64_t at, float *sum, const float *first, float *now,
                        const uint32_t *mask, float rate) {
    Line gradient[TILE][LINES];
    const Line factor = line_all(rate);
    outer(rows, 1, depth, x, x_stride, g, g_stride, 0, gradient);
    for (int r = 0; r < rows; r++, at += 16) {
        step_line(sum + at, first + at, now + at, line_masked(gradient[r][0], mask ? mask + at : NULL), factor);
    }
}

/* sum += rate * x^T g and now = first + sum, all three in panels. */
static void step_dense(int depth, const float *x, ptrdiff_t x_stride, int rows, const float *g,
                            ptrdiff_t g_stride, int panels, float *sum, const float *first, float *now,
                            const uint32_t *mask, float rate) {
    for (int p = 0; p < panels; p++, g += 16) {
        int i = 0;
        for (; i + TILE <= rows; i += TILE) {
            step_tile(TILE, depth, x + i, x_stride, g, g_stride, ((int64_t)p * rows + i) * 16, sum, first, now, mask,
                      rate);
        }
        for (; i < rows; i++) {
            step_tile(1, depth, x + i, x_stride, g, g_stride, ((int64_t)p * rows + i) * 16, sum, first, now, mask,
                      rate);
        }
    }
}

TEMPLATE void write_tile(const int rows, const int lines, int depth, const float *x, ptrdiff_t x_stride, const float *g,
                         float rate, float *to, int columns, int width) {
    Line sum[TILE][LINES];
    const Line factor = line_all(rate);
    outer(rows, lines, depth, x, x_stride, g, 16, (ptrdiff_t)depth * 16, sum);
    for (int r = 0; r < rows; r++, to += columns) {
        float line[16];
        float *place = width < 16 ? line : to;
        for (int l = 0; l < lines; l++) put_line(place + l * 16, line_times(sum[r][l], factor));
        if (width < 16) memcpy(to, line, (size_t)width * sizeof(float));
    }
}

/* to (rows, columns) = rate * x^T g; `packed` has room for g in panels. */
static void write_outer(int depth, const float *x, ptrdiff_t x_stride, int rows, const float *g,
                             ptrdiff_t g_stride, int columns, float rate, float *packed, float *to) {
    const int panels = up(columns, 16) / 16;
    for (int p = 0; p < panels; p++) {
        for (int k = 0; k < depth; k++) {
            memcpy(packed + ((int64_t)p * depth + k) * 16, g + k * g_stride + p * 16, 16 * sizeof(float));
        }
    }
    for (int i = 0; i < rows;) {
        const int whole = i + TILE <= rows;
        for (int p = 0; p < panels;) {
            const float *panel = packed + (int64_t)p * depth * 16;
            float *place = to + (int64_t)i * columns + p * 16;
            const int left = columns - p * 16, wide = left >= 16 * LINES;
            if (whole && wide) {
                write_tile(TILE, LINES, depth, x + i, x_stride, panel, rate, place, columns, 16);
            } else if (whole) {
                write_tile(TILE, 1, depth, x + i, x_stride, panel, rate, place, columns, smaller(16, left));
            } else {
                write_tile(1, 1, depth, x + i, x_stride, panel, rate, place, columns, smaller(16, left));
            }
            p += whole && wide ? LINES : 1;
        }
        i += whole ? TILE : 1;
    }
}

#endif
