/* Train small networks by plain SGD, many clients a call, on one core with AVX2 and FMA.
 *
 * Read fast.py first: it says what is computed and owns all memory. Three ideas make this faster than dense algebra:
 *   - a convolution, its ReLU and its max-pool are one pass, and their gradient is kept as lists of the few entries
 *     that pooling and ReLU leave different from zero;
 *   - a big dense matrix is never updated inside a client: W_t = W_0 - lr * (sum of outer products), so products with
 *     W_0 are shared by all clients of a chunk;
 *   - with a mask, only kept entries of a gradient are computed.
 *
 * Every output is summed in an order that depends on the shape of its own client's work alone, never on its neighbours
 * in a tile or chunk. That is why tiles of different heights run the same instructions per element.
 *
 * Words: a *panel* is 16 columns of a matrix, stored (rows, 16) and padded with zeros. A *cell* is one output of a
 * pool; a *position* one output of a convolution, numbered cell by cell. *Back layout* of a convolution kernel is
 * (block, out, block values): for one output channel a block is a few vectors of a patch, so that gradients run over
 * contiguous memory and the blocks of all channels fit the first-level cache.
 */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <immintrin.h>

#define EXPORT __attribute__((visibility("default")))
#define FAST __attribute__((target("avx2,fma")))
#define TEMPLATE static inline __attribute__((always_inline, target("avx2,fma")))

enum { MAX_LAYERS = 32, TILE = 6, GROUP = 96, DEPTH = 256 };
enum { DIRECT = 0, LOW_RANK = 1, SPARSE = 2 };
enum { INACTIVE = 255 };

typedef struct {
    int32_t conv, in, out, relu;
    int32_t height, width, kernel, pad_before, pad_total, pool;
    int32_t mode, reserved;
    int64_t weight, bias; /* places in the flat vector */
    int64_t kept;         /* trainable weights, for SPARSE */
} Layer;

typedef struct {
    int32_t layers, steps, chunk, batch; /* clients a chunk, largest batch */
    int32_t bytes, binary, training, lowest; /* lowest: the first layer with anything trainable */
    float scale, lr;
    Layer layer[MAX_LAYERS];
} Job;

typedef struct {
    int32_t at; /* offset of a patch, or an output channel */
    float value;
} Entry;

/* What follows from a layer's shape, and where its first weights are packed. */
typedef struct {
    Layer is;
    int taps_row, taps, width_padded, row_stride, out_padded, panels;
    int cells_high, cells_wide, cells, window, positions;
    int block_rows, block_vectors, chunks, blocks, block;
    int64_t in_stride, back_size;
    const float *panel, *back, *bias;
    int32_t *position, *cell; /* offsets in the input, and in the input of the next layer */
    uint32_t *mask, *mask_back, *mask_bias;
    int32_t *kept_in, *kept_out, *by_in, *by_out, *order; /* SPARSE: entries, starts by row and by column */
} Shape;

/* One layer of one client of the chunk. */
typedef struct {
    float *x, *gradient, *panel, *back, *sum, *sum_back, *bias, *bias_sum, *transposed;
    uint8_t *where;
} Slot;

typedef struct {
    const Job *job;
    const uint8_t *trainable;
    int first_dense;
    Shape shape[MAX_LAYERS];
    Slot *slot;
    const float **row;
    float *z, *d, *dots, *gradient, *bias_gradient, *dx[2], *packed;
    Entry *by_channel, *by_position;
    int32_t *channel_count, *position_count;
} Plan;

typedef struct {
    char *base;
    int64_t used;
} Arena;

static void *take(Arena *arena, int64_t bytes) {
    void *place = arena->base ? arena->base + arena->used : NULL;
    arena->used += (bytes + 63) / 64 * 64;
    return place;
}

static float *floats(Arena *arena, int64_t count) { return take(arena, count * (int64_t)sizeof(float)); }

static int up(int value, int unit) { return (value + unit - 1) / unit * unit; }

static int smaller(int a, int b) { return a < b ? a : b; }

/* ---- shapes and packing ---- */

static Shape shape_of(const Layer *layer) {
    Shape s;
    memset(&s, 0, sizeof s);
    s.is = *layer;
    s.out_padded = up(layer->out, 16);
    s.panels = s.out_padded / 16;
    if (!layer->conv) {
        s.in_stride = up(layer->in, 16);
        s.taps = layer->in;
        s.back_size = s.in_stride * layer->out;
        return s;
    }
    const int kernel = layer->kernel;
    s.taps_row = kernel * layer->in;
    s.taps = kernel * s.taps_row;
    s.width_padded = layer->width + layer->pad_total;
    s.row_stride = s.width_padded * layer->in;
    s.cells_high = (layer->height + layer->pad_total - kernel + 1) / layer->pool;
    s.cells_wide = (layer->width + layer->pad_total - kernel + 1) / layer->pool;
    s.cells = s.cells_high * s.cells_wide;
    s.window = layer->pool * layer->pool;
    s.positions = s.cells * s.window;
    const int vectors = up(s.taps_row, 8) / 8;
    const int whole = vectors <= 2 && (kernel == 3 || kernel == 5 || (kernel == 7 && vectors == 1));
    s.block_rows = whole ? kernel : 1;
    s.chunks = up(vectors, 10) / 10;
    s.block_vectors = up(vectors, s.chunks) / s.chunks;
    s.blocks = kernel / s.block_rows * s.chunks;
    s.block = s.block_rows * s.block_vectors * 8;
    s.back_size = (int64_t)s.blocks * layer->out * s.block;
    /* Vectors may read past the last patch, never past the room of its image. */
    s.in_stride = up((layer->height + layer->pad_total) * s.row_stride + s.chunks * s.block_vectors * 8, 16);
    return s;
}

/* Place of tap (row, column) of channel 0 in the back layout; channel c is c * block further. */
static int64_t back_place(const Shape *s, int row, int column) {
    const int vector = column / 8, chunk = vector / s->block_vectors;
    const int64_t block = row / s->block_rows * s->chunks + chunk;
    return block * s->is.out * s->block +
           (row % s->block_rows * s->block_vectors + vector % s->block_vectors) * 8 + column % 8;
}

static void pack_panels(float *to, const float *weights, int rows, int columns) {
    for (int first = 0; first < columns; first += 16) {
        const int width = smaller(16, columns - first);
        for (int row = 0; row < rows; row++, to += 16) {
            for (int j = 0; j < 16; j++) to[j] = j < width ? weights[(int64_t)row * columns + first + j] : 0;
        }
    }
}

static void pack_transposed(float *to, const float *weights, int rows, int columns) {
    for (int first = 0; first < rows; first += 16) {
        const int width = smaller(16, rows - first);
        for (int column = 0; column < columns; column++, to += 16) {
            for (int j = 0; j < 16; j++) to[j] = j < width ? weights[(int64_t)(first + j) * columns + column] : 0;
        }
    }
}

static void pack_back(float *to, const float *weights, const Shape *s) {
    memset(to, 0, (size_t)s->back_size * sizeof(float));
    for (int tap = 0; tap < s->taps; tap++) {
        float *place = to + back_place(s, tap / s->taps_row, tap % s->taps_row);
        for (int c = 0; c < s->is.out; c++) place[c * s->block] = weights[(int64_t)tap * s->is.out + c];
    }
}

static void panels_from_back(float *to, const float *back, const Shape *s) {
    for (int tap = 0; tap < s->taps; tap++) {
        const float *place = back + back_place(s, tap / s->taps_row, tap % s->taps_row);
        for (int c = 0; c < s->is.out; c++) {
            to[((int64_t)(c / 16) * s->taps + tap) * 16 + c % 16] = place[(int64_t)c * s->block];
        }
    }
}

static void packed_places(Shape *s, Arena *arena) {
    s->panel = floats(arena, (int64_t)s->panels * s->taps * 16);
    s->back = floats(arena, s->back_size);
    s->bias = floats(arena, s->out_padded);
}

EXPORT int64_t sottovoce_packed_size(const Job *job) {
    Arena arena = {NULL, 0};
    for (int l = 0; l < job->layers; l++) {
        Shape s = shape_of(&job->layer[l]);
        packed_places(&s, &arena);
    }
    return arena.used;
}

EXPORT void sottovoce_pack(const Job *job, const float *params, void *packed) {
    Arena arena = {packed, 0};
    for (int l = 0; l < job->layers; l++) {
        Shape s = shape_of(&job->layer[l]);
        const float *weights = params + s.is.weight;
        packed_places(&s, &arena);
        pack_panels((float *)s.panel, weights, s.taps, s.is.out);
        if (s.is.conv) {
            pack_back((float *)s.back, weights, &s);
        } else {
            pack_transposed((float *)s.back, weights, s.is.in, s.is.out);
        }
        memset((float *)s.bias, 0, (size_t)s.out_padded * sizeof(float));
        memcpy((float *)s.bias, params + s.is.bias, (size_t)s.is.out * sizeof(float));
    }
}

/* ---- dense products ---- */

TEMPLATE void tile(const int rows, const float *const *a, ptrdiff_t shift, int segments, ptrdiff_t segment, int length,
                   const float *w, ptrdiff_t w_stride, float *c, ptrdiff_t c_stride, int add) {
    __m256 low[TILE], high[TILE];
    const float *from[TILE];
    for (int r = 0; r < rows; r++) {
        low[r] = high[r] = _mm256_setzero_ps();
        from[r] = a[r] + shift;
    }
    for (int s = 0; s < segments; s++) {
        for (int k = 0; k < length; k++, w += w_stride) {
            const __m256 w0 = _mm256_loadu_ps(w), w1 = _mm256_loadu_ps(w + 8);
            for (int r = 0; r < rows; r++) {
                const __m256 v = _mm256_broadcast_ss(from[r] + k);
                low[r] = _mm256_fmadd_ps(v, w0, low[r]);
                high[r] = _mm256_fmadd_ps(v, w1, high[r]);
            }
        }
        for (int r = 0; r < rows; r++) from[r] += segment;
    }
    for (int r = 0; r < rows; r++, c += c_stride) {
        if (add) {
            low[r] = _mm256_add_ps(low[r], _mm256_loadu_ps(c));
            high[r] = _mm256_add_ps(high[r], _mm256_loadu_ps(c + 8));
        }
        _mm256_storeu_ps(c, low[r]);
        _mm256_storeu_ps(c + 8, high[r]);
    }
}

/* c[r] (+)= sum over segments and k of a[r][shift + segment s + k] * w[s, k], 16 columns wide. */
static FAST void product(const float *const *a, int rows, ptrdiff_t shift, int segments, ptrdiff_t segment, int length,
                         const float *w, ptrdiff_t w_stride, float *c, ptrdiff_t c_stride, int add) {
    for (; rows >= TILE; rows -= TILE, a += TILE, c += TILE * c_stride) {
        tile(TILE, a, shift, segments, segment, length, w, w_stride, c, c_stride, add);
    }
    switch (rows) {
    case 1: tile(1, a, shift, segments, segment, length, w, w_stride, c, c_stride, add); break;
    case 2: tile(2, a, shift, segments, segment, length, w, w_stride, c, c_stride, add); break;
    case 3: tile(3, a, shift, segments, segment, length, w, w_stride, c, c_stride, add); break;
    case 4: tile(4, a, shift, segments, segment, length, w, w_stride, c, c_stride, add); break;
    case 5: tile(5, a, shift, segments, segment, length, w, w_stride, c, c_stride, add); break;
    default: break;
    }
}

/* c = a @ w for w in panels; the depth is cut so that a piece of a panel stays in the first-level cache. */
static FAST void multiply(const float *const *a, int rows, int depth, const float *panel, int panels, float *c,
                          ptrdiff_t c_stride) {
    for (int k = 0; k < depth; k += DEPTH) {
        for (int p = 0; p < panels; p++) {
            product(a, rows, k, 1, 0, smaller(DEPTH, depth - k), panel + ((int64_t)p * depth + k) * 16, 16,
                    c + p * 16, c_stride, k > 0);
        }
    }
}

TEMPLATE float total(__m256 v) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

TEMPLATE void dots_tile(const int m, const int n, const float *a, const float *b, ptrdiff_t stride, float factor,
                        float *c, ptrdiff_t c_stride) {
    __m256 sum[2][4];
    for (int i = 0; i < m; i++) {
        for (int j = 0; j < n; j++) sum[i][j] = _mm256_setzero_ps();
    }
    for (ptrdiff_t k = 0; k < stride; k += 8) {
        for (int j = 0; j < n; j++) {
            const __m256 v = _mm256_loadu_ps(b + j * stride + k);
            for (int i = 0; i < m; i++) {
                sum[i][j] = _mm256_fmadd_ps(_mm256_loadu_ps(a + i * stride + k), v, sum[i][j]);
            }
        }
    }
    for (int i = 0; i < m; i++) {
        for (int j = 0; j < n; j++) c[i * c_stride + j] = factor * total(sum[i][j]);
    }
}

/* c[i][j] = factor * <a_i, b_j>; rows are `stride` long, their padding is zero. */
static FAST void dots(const float *a, int m, const float *b, int n, ptrdiff_t stride, float factor, float *c) {
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

/* low, high = the `rows` x 16 tile of x^T g. */
TEMPLATE void outer(const int rows, int depth, const float *x, ptrdiff_t x_stride, const float *g, ptrdiff_t g_stride,
                    __m256 *low, __m256 *high) {
    for (int r = 0; r < rows; r++) low[r] = high[r] = _mm256_setzero_ps();
    for (int k = 0; k < depth; k++, x += x_stride, g += g_stride) {
        const __m256 g0 = _mm256_loadu_ps(g), g1 = _mm256_loadu_ps(g + 8);
        for (int r = 0; r < rows; r++) {
            const __m256 v = _mm256_broadcast_ss(x + r);
            low[r] = _mm256_fmadd_ps(v, g0, low[r]);
            high[r] = _mm256_fmadd_ps(v, g1, high[r]);
        }
    }
}

TEMPLATE __m256 masked(__m256 v, const uint32_t *mask) {
    return mask ? _mm256_and_ps(v, _mm256_loadu_ps((const float *)mask)) : v;
}

TEMPLATE void step_vector(float *sum, const float *first, float *now, __m256 gradient, __m256 rate) {
    const __m256 s = _mm256_fmadd_ps(rate, gradient, _mm256_loadu_ps(sum));
    _mm256_storeu_ps(sum, s);
    _mm256_storeu_ps(now, _mm256_add_ps(_mm256_loadu_ps(first), s));
}

TEMPLATE void step_tile(const int rows, int depth, const float *x, ptrdiff_t x_stride, const float *g,
                        ptrdiff_t g_stride, int64_t at, float *sum, const float *first, float *now,
                        const uint32_t *mask, float rate) {
    __m256 low[TILE], high[TILE];
    const __m256 factor = _mm256_set1_ps(rate);
    outer(rows, depth, x, x_stride, g, g_stride, low, high);
    for (int r = 0; r < rows; r++, at += 16) {
        step_vector(sum + at, first + at, now + at, masked(low[r], mask ? mask + at : NULL), factor);
        step_vector(sum + at + 8, first + at + 8, now + at + 8, masked(high[r], mask ? mask + at + 8 : NULL), factor);
    }
}

/* sum += rate * x^T g and now = first + sum, all three in panels. */
static FAST void step_dense(int depth, const float *x, ptrdiff_t x_stride, int rows, const float *g,
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

TEMPLATE void write_tile(const int rows, int depth, const float *x, ptrdiff_t x_stride, const float *g, float rate,
                         float *to, int columns, int width) {
    __m256 low[TILE], high[TILE];
    const __m256 factor = _mm256_set1_ps(rate);
    outer(rows, depth, x, x_stride, g, 16, low, high);
    for (int r = 0; r < rows; r++, to += columns) {
        float line[16];
        float *place = width == 16 ? to : line;
        _mm256_storeu_ps(place, _mm256_mul_ps(low[r], factor));
        _mm256_storeu_ps(place + 8, _mm256_mul_ps(high[r], factor));
        if (width < 16) memcpy(to, line, (size_t)width * sizeof(float));
    }
}

/* to (rows, columns) = rate * x^T g; `packed` has room for g in panels. */
static FAST void write_outer(int depth, const float *x, ptrdiff_t x_stride, int rows, const float *g,
                             ptrdiff_t g_stride, int columns, float rate, float *packed, float *to) {
    const int panels = up(columns, 16) / 16;
    for (int p = 0; p < panels; p++) {
        for (int k = 0; k < depth; k++) {
            memcpy(packed + ((int64_t)p * depth + k) * 16, g + k * g_stride + p * 16, 16 * sizeof(float));
        }
    }
    for (int i = 0; i < rows;) {
        const int whole = i + TILE <= rows;
        for (int p = 0; p < panels; p++) {
            const float *panel = packed + (int64_t)p * depth * 16;
            float *place = to + (int64_t)i * columns + p * 16;
            const int width = smaller(16, columns - p * 16);
            if (whole) {
                write_tile(TILE, depth, x + i, x_stride, panel, rate, place, columns, width);
            } else {
                write_tile(1, depth, x + i, x_stride, panel, rate, place, columns, width);
            }
        }
        i += whole ? TILE : 1;
    }
}

/* ---- convolutions ---- */

/* Reduce `window` rows of 16 convolution outputs to one; keep which was first largest, or INACTIVE after the ReLU. */
TEMPLATE void pool_cell(const float *v, int window, const float *bias, int relu, float *out, int width,
                        uint8_t *where) {
    __m256i picked[2];
    float line[16];
    float *place = width == 16 ? out : line;
    for (int half = 0; half < 2; half++) {
        __m256 best = _mm256_loadu_ps(v + 8 * half);
        __m256i index = _mm256_setzero_si256();
        for (int q = 1; q < window; q++) {
            const __m256 next = _mm256_loadu_ps(v + q * 16 + 8 * half);
            /* NaN wins, as in torch, and stays: nothing is greater than it. */
            const __m256 wins = _mm256_or_ps(_mm256_cmp_ps(next, best, _CMP_GT_OQ),
                                             _mm256_cmp_ps(next, next, _CMP_UNORD_Q));
            best = _mm256_blendv_ps(best, next, wins);
            index = _mm256_blendv_epi8(index, _mm256_set1_epi32(q), _mm256_castps_si256(wins));
        }
        best = _mm256_add_ps(best, _mm256_loadu_ps(bias + 8 * half));
        if (relu) {
            const __m256 dead = _mm256_cmp_ps(best, _mm256_setzero_ps(), _CMP_LE_OQ);
            index = _mm256_or_si256(index, _mm256_and_si256(_mm256_castps_si256(dead), _mm256_set1_epi32(INACTIVE)));
            best = _mm256_andnot_ps(dead, best);
        }
        _mm256_storeu_ps(place + 8 * half, best);
        picked[half] = index;
    }
    if (width < 16) memcpy(out, line, (size_t)width * sizeof(float));
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packus_epi32(picked[0], picked[1]), 0xd8);
    const __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128((__m128i *)where, bytes);
}

/* Convolve, pool and rectify one padded image. */
static FAST void conv_forward(const Shape *s, const float *panel, const float *bias, const float *x, float *out,
                              uint8_t *where) {
    _Alignas(64) float outputs[GROUP * 16];
    const float *rows[GROUP];
    const int kernel = s->is.kernel, window = s->window;
    const int batch = s->taps_row >= DEPTH / 2 ? 1 : smaller(kernel, DEPTH / s->taps_row);
    for (int p = 0; p < s->panels; p++) {
        const int width = smaller(16, s->is.out - p * 16);
        for (int first = 0; first < s->positions; first += GROUP) {
            const int count = smaller(GROUP, s->positions - first);
            for (int i = 0; i < count; i++) rows[i] = x + s->position[first + i];
            for (int row = 0; row < kernel; row += batch) {
                product(rows, count, (ptrdiff_t)row * s->row_stride, smaller(batch, kernel - row), s->row_stride,
                        s->taps_row, panel + ((int64_t)p * s->taps + row * s->taps_row) * 16, 16, outputs, 16, row > 0);
            }
            for (int i = 0; i < count; i += window) {
                const int cell = (first + i) / window;
                pool_cell(outputs + i * 16, window, bias + p * 16, s->is.relu, out + s->cell[cell] + p * 16, width,
                          where + (int64_t)cell * s->out_padded + p * 16);
            }
        }
    }
}

/* List the gradients that are not zero, by channel (for the kernel) and by position (for the image below). */
static FAST void conv_lists(Plan *plan, const Shape *s, const float *gradient, const uint8_t *where) {
    Entry *by_channel = plan->by_channel, *by_position = plan->by_position;
    int32_t *channel_count = plan->channel_count, *position_count = plan->position_count;
    memset(channel_count, 0, (size_t)s->is.out * sizeof(int32_t));
    memset(position_count, 0, (size_t)s->positions * sizeof(int32_t));
    for (int cell = 0; cell < s->cells; cell++, where += s->out_padded) {
        const float *values = gradient + s->cell[cell];
        for (int first = 0; first < s->is.out; first += 8) {
            unsigned live = 0;
            if (first + 8 <= s->is.out) {
                const __m256i q = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(where + first)));
                const __m256 dead = _mm256_castsi256_ps(_mm256_cmpeq_epi32(q, _mm256_set1_epi32(INACTIVE)));
                const __m256 some =
                    _mm256_cmp_ps(_mm256_loadu_ps(values + first), _mm256_setzero_ps(), _CMP_NEQ_UQ);
                live = (unsigned)_mm256_movemask_ps(_mm256_andnot_ps(dead, some));
            } else {
                for (int c = first; c < s->is.out; c++) {
                    live |= (unsigned)(where[c] != INACTIVE && values[c] != 0) << (c - first);
                }
            }
            for (; live; live &= live - 1) {
                const int c = first + __builtin_ctz(live);
                const int position = cell * s->window + where[c];
                by_channel[(int64_t)c * s->cells + channel_count[c]++] = (Entry){s->position[position], values[c]};
                by_position[(int64_t)position * s->is.out + position_count[position]++] = (Entry){c, values[c]};
            }
        }
    }
}

/* to += sum over entries of value * (a block of the patch at the entry). */
TEMPLATE void gather_block(const int rows, const int vectors, const Entry *entry, int count, const float *x,
                           ptrdiff_t row_stride, float *to) {
    __m256 sum[14];
    for (int i = 0; i < rows * vectors; i++) sum[i] = _mm256_loadu_ps(to + 8 * i);
    for (int e = 0; e < count; e++) {
        const __m256 value = _mm256_broadcast_ss(&entry[e].value);
        const float *patch = x + entry[e].at;
        for (int r = 0; r < rows; r++) {
            for (int v = 0; v < vectors; v++) {
                sum[r * vectors + v] =
                    _mm256_fmadd_ps(value, _mm256_loadu_ps(patch + r * row_stride + 8 * v), sum[r * vectors + v]);
            }
        }
    }
    for (int i = 0; i < rows * vectors; i++) _mm256_storeu_ps(to + 8 * i, sum[i]);
}

/* patch += sum over entries of value * (a block of the channel's kernel). */
TEMPLATE void scatter_block(const int rows, const int vectors, const Entry *entry, int count, const float *kernel,
                            ptrdiff_t row_stride, float *patch) {
    __m256 sum[14];
    for (int r = 0; r < rows; r++) {
        for (int v = 0; v < vectors; v++) sum[r * vectors + v] = _mm256_loadu_ps(patch + r * row_stride + 8 * v);
    }
    for (int e = 0; e < count; e++) {
        const __m256 value = _mm256_broadcast_ss(&entry[e].value);
        const float *block = kernel + (ptrdiff_t)entry[e].at * (rows * vectors * 8);
        for (int i = 0; i < rows * vectors; i++) {
            sum[i] = _mm256_fmadd_ps(value, _mm256_loadu_ps(block + 8 * i), sum[i]);
        }
    }
    for (int r = 0; r < rows; r++) {
        for (int v = 0; v < vectors; v++) _mm256_storeu_ps(patch + r * row_stride + 8 * v, sum[r * vectors + v]);
    }
}

/* The shapes of block that shape_of() can choose, with constants for the compiler to unroll. */
#define EACH_BLOCK(CASE)                                                                                            \
    CASE(1, 1) CASE(1, 2) CASE(1, 3) CASE(1, 4) CASE(1, 5) CASE(1, 6) CASE(1, 7) CASE(1, 8) CASE(1, 9) CASE(1, 10)  \
    CASE(3, 1) CASE(3, 2) CASE(5, 1) CASE(5, 2) CASE(7, 1)

static FAST void conv_kernel_gradient(const Plan *plan, const Shape *s, const float *x, float *gradient) {
    for (int block = 0; block < s->blocks; block++) {
        const float *from = x + block / s->chunks * s->block_rows * s->row_stride +
                            block % s->chunks * s->block_vectors * 8;
        for (int c = 0; c < s->is.out; c++) {
            const Entry *entry = plan->by_channel + (int64_t)c * s->cells;
            const int count = plan->channel_count[c];
            float *to = gradient + ((int64_t)block * s->is.out + c) * s->block;
            switch (s->block_rows * 16 + s->block_vectors) {
#define CASE(R, V) \
    case R * 16 + V: gather_block(R, V, entry, count, from, s->row_stride, to); break;
                EACH_BLOCK(CASE)
#undef CASE
            default: break;
            }
        }
    }
}

static FAST void conv_image_gradient(const Plan *plan, const Shape *s, const float *back, float *dx) {
    memset(dx, 0, (size_t)s->in_stride * sizeof(float));
    for (int block = 0; block < s->blocks; block++) {
        float *to = dx + block / s->chunks * s->block_rows * s->row_stride + block % s->chunks * s->block_vectors * 8;
        const float *kernel = back + (int64_t)block * s->is.out * s->block;
        for (int position = 0; position < s->positions; position++) {
            const Entry *entry = plan->by_position + (int64_t)position * s->is.out;
            const int count = plan->position_count[position];
            if (!count) continue;
            float *patch = to + s->position[position];
            switch (s->block_rows * 16 + s->block_vectors) {
#define CASE(R, V) \
    case R * 16 + V: scatter_block(R, V, entry, count, kernel, s->row_stride, patch); break;
                EACH_BLOCK(CASE)
#undef CASE
            default: break;
            }
        }
    }
}

/* The same gradient for the kept taps alone; entry e of channel c reads the input at kept_in[e] from the patch. */
static FAST void conv_kept_gradient(const Plan *plan, const Shape *s, const float *x, float *gradient) {
    for (int c = 0; c < s->is.out; c++) {
        const Entry *entry = plan->by_channel + (int64_t)c * s->cells;
        const int count = plan->channel_count[c];
        for (int e = s->by_out[c]; e < s->by_out[c + 1]; e++) {
            const float *from = x + s->kept_in[e];
            float even = 0, odd = 0;
            int i = 0;
            for (; i + 1 < count; i += 2) {
                even += entry[i].value * from[entry[i].at];
                odd += entry[i + 1].value * from[entry[i + 1].at];
            }
            if (i < count) even += entry[i].value * from[entry[i].at];
            gradient[e] += even + odd;
        }
    }
}

static FAST void step_bias(const Shape *s, const Slot *slot, const float *gradient, float rate) {
    const __m256 factor = _mm256_set1_ps(rate);
    for (int o = 0; o < s->out_padded; o += 8) {
        step_vector(slot->bias_sum + o, s->bias + o, slot->bias + o,
                    masked(_mm256_loadu_ps(gradient + o), s->mask_bias ? s->mask_bias + o : NULL), factor);
    }
}

static FAST void step_conv(const Shape *s, const Slot *slot, float *gradient, float rate) {
    if (s->is.mode == SPARSE) {
        for (int64_t e = 0; e < s->is.kept; e++) {
            const int tap = s->order[e], c = s->kept_out[e];
            const int64_t place = back_place(s, tap / s->taps_row, tap % s->taps_row) + (int64_t)c * s->block;
            slot->sum[e] += rate * gradient[e];
            slot->back[place] = s->back[place] + slot->sum[e];
            slot->panel[((int64_t)(c / 16) * s->taps + tap) * 16 + c % 16] = slot->back[place];
        }
        return;
    }
    const __m256 factor = _mm256_set1_ps(rate);
    /* The lanes past a row of taps have gathered neighbours of the patch; they must stay zero in the weights. */
    for (int row = 0; row < s->is.kernel; row++) {
        for (int column = s->taps_row; column < s->chunks * s->block_vectors * 8; column++) {
            float *place = gradient + back_place(s, row, column);
            for (int c = 0; c < s->is.out; c++) place[(int64_t)c * s->block] = 0;
        }
    }
    for (int64_t i = 0; i < s->back_size; i += 8) {
        step_vector(slot->sum + i, s->back + i, slot->back + i,
                    masked(_mm256_loadu_ps(gradient + i), s->mask ? s->mask + i : NULL), factor);
    }
    panels_from_back(slot->panel, slot->back, s);
}

/* Go back through a convolution for a whole batch and take its step; `d` is replaced by the gradient below. */
static FAST void conv_backward(Plan *plan, int layer, const Slot *slot, int batch, float **d, int64_t *d_stride,
                               float rate) {
    const Shape *s = &plan->shape[layer];
    const int below = layer > plan->job->lowest, sparse = s->is.mode == SPARSE;
    float *bias = plan->bias_gradient;
    float *dx = plan->dx[*d == plan->dx[0]];
    memset(plan->gradient, 0, (size_t)(sparse ? s->is.kept : s->back_size) * sizeof(float));
    memset(bias, 0, (size_t)s->out_padded * sizeof(float));
    for (int r = 0; r < batch; r++) {
        const float *x = slot->x + r * s->in_stride;
        conv_lists(plan, s, *d + r * *d_stride, slot->where + (int64_t)r * s->cells * s->out_padded);
        for (int c = 0; c < s->is.out; c++) {
            float sum = 0;
            for (int e = 0; e < plan->channel_count[c]; e++) sum += plan->by_channel[(int64_t)c * s->cells + e].value;
            bias[c] += sum;
        }
        if (sparse) {
            conv_kept_gradient(plan, s, x, plan->gradient);
        } else {
            conv_kernel_gradient(plan, s, x, plan->gradient);
        }
        if (below) conv_image_gradient(plan, s, slot->back, dx + r * s->in_stride);
    }
    step_conv(s, slot, plan->gradient, rate);
    step_bias(s, slot, bias, rate);
    *d = dx;
    *d_stride = s->in_stride;
}

/* ---- dense layers with a sparse mask: the batch lies in the lanes ---- */

static FAST void transpose_batch(const float *from, int batch, ptrdiff_t stride, int columns, float *to) {
    const int lanes = up(batch, 8);
    for (int j = 0; j < columns; j++) {
        for (int r = 0; r < lanes; r++) to[(int64_t)j * lanes + r] = r < batch ? from[r * stride + j] : 0;
    }
}

/* z += x @ (what the kept weights have moved). */
static FAST void kept_forward(const Shape *s, const Slot *slot, int batch, float *z) {
    const int lanes = up(batch, 8);
    for (int o = 0; o < s->is.out; o++) {
        if (s->by_out[o] == s->by_out[o + 1]) continue;
        for (int first = 0; first < batch; first += 8) {
            __m256 sum = _mm256_setzero_ps();
            float line[8];
            for (int i = s->by_out[o]; i < s->by_out[o + 1]; i++) {
                const int e = s->order[i];
                sum = _mm256_fmadd_ps(_mm256_broadcast_ss(slot->sum + e),
                                      _mm256_loadu_ps(slot->transposed + (int64_t)s->kept_in[e] * lanes + first), sum);
            }
            _mm256_storeu_ps(line, sum);
            for (int r = first; r < smaller(batch, first + 8); r++) z[(int64_t)r * s->out_padded + o] += line[r - first];
        }
    }
}

/* d += g @ (what the kept weights have moved)^T. */
static FAST void kept_backward(const Shape *s, const Slot *slot, int batch, const float *g, float *d) {
    const int lanes = up(batch, 8);
    for (int i = 0; i < s->is.in; i++) {
        if (s->by_in[i] == s->by_in[i + 1]) continue;
        for (int first = 0; first < batch; first += 8) {
            __m256 sum = _mm256_setzero_ps();
            float line[8];
            for (int e = s->by_in[i]; e < s->by_in[i + 1]; e++) {
                sum = _mm256_fmadd_ps(_mm256_broadcast_ss(slot->sum + e),
                                      _mm256_loadu_ps(g + (int64_t)s->kept_out[e] * lanes + first), sum);
            }
            _mm256_storeu_ps(line, sum);
            for (int r = first; r < smaller(batch, first + 8); r++) d[r * s->in_stride + i] += line[r - first];
        }
    }
}

static FAST void kept_step(const Shape *s, const Slot *slot, int batch, const float *g, float rate) {
    const int lanes = up(batch, 8);
    for (int64_t e = 0; e < s->is.kept; e++) {
        const float *x = slot->transposed + (int64_t)s->kept_in[e] * lanes, *y = g + (int64_t)s->kept_out[e] * lanes;
        __m256 sum = _mm256_mul_ps(_mm256_loadu_ps(x), _mm256_loadu_ps(y));
        for (int r = 8; r < lanes; r += 8) sum = _mm256_fmadd_ps(_mm256_loadu_ps(x + r), _mm256_loadu_ps(y + r), sum);
        slot->sum[e] += rate * total(sum);
    }
}

/* ---- masks ---- */

static uint32_t word(uint8_t kept) { return kept ? UINT32_MAX : 0; }

static void index_kept(Shape *s, const uint8_t *kept) {
    const int in = s->taps, out = s->is.out;
    int32_t e = 0;
    if (s->is.conv) { /* by channel: kept_in is the offset in a patch, order the tap */
        for (int c = 0; c < out; c++) {
            s->by_out[c] = e;
            for (int tap = 0; tap < in; tap++) {
                if (!kept[(int64_t)tap * out + c]) continue;
                s->kept_in[e] = tap / s->taps_row * s->row_stride + tap % s->taps_row;
                s->kept_out[e] = c;
                s->order[e++] = tap;
            }
        }
        s->by_out[out] = e;
        return;
    }
    memset(s->by_out, 0, (size_t)(out + 1) * sizeof(int32_t));
    for (int i = 0; i < in; i++) {
        const uint8_t *row = kept + (int64_t)i * out;
        s->by_in[i] = e;
        for (int o = 0; o < out; o++) {
            if (!row[o]) continue;
            s->kept_in[e] = i;
            s->kept_out[e++] = o;
            s->by_out[o + 1]++;
        }
    }
    s->by_in[in] = e;
    for (int o = 0; o < out; o++) s->by_out[o + 1] += s->by_out[o];
    /* Counting sort; by_out[o] runs to the start of o + 1 and is put back after. */
    for (e = 0; e < s->is.kept; e++) s->order[s->by_out[s->kept_out[e]]++] = e;
    for (int o = out; o > 0; o--) s->by_out[o] = s->by_out[o - 1];
    s->by_out[0] = 0;
}

static void fill_masks(Shape *s, const uint8_t *trainable) {
    const uint8_t *kept = trainable + s->is.weight;
    for (int o = 0; o < s->out_padded; o++) s->mask_bias[o] = o < s->is.out ? word(trainable[s->is.bias + o]) : 0;
    if (s->is.mode == SPARSE) {
        index_kept(s, kept);
        return;
    }
    memset(s->mask, 0, (size_t)(s->is.conv ? s->back_size : (int64_t)s->panels * s->taps * 16) * sizeof(uint32_t));
    if (!s->is.conv) memset(s->mask_back, 0, (size_t)s->back_size * sizeof(uint32_t));
    for (int tap = 0; tap < s->taps; tap++) {
        for (int o = 0; o < s->is.out; o++) {
            const uint32_t bits = word(kept[(int64_t)tap * s->is.out + o]);
            if (s->is.conv) {
                s->mask[back_place(s, tap / s->taps_row, tap % s->taps_row) + (int64_t)o * s->block] = bits;
            } else {
                s->mask[((int64_t)(o / 16) * s->taps + tap) * 16 + o % 16] = bits;
                s->mask_back[((int64_t)(tap / 16) * s->is.out + o) * 16 + tap % 16] = bits;
            }
        }
    }
}

/* ---- memory ---- */

static void slot_places(const Plan *plan, const Shape *s, Slot *slot, Arena *arena) {
    const Job *job = plan->job;
    const int64_t batch = job->batch, panel = (int64_t)s->panels * s->taps * 16;
    const int64_t steps = s->is.mode == LOW_RANK && job->training ? job->steps : 1;
    slot->x = floats(arena, steps * batch * s->in_stride);
    if (s->is.conv) slot->where = take(arena, batch * s->cells * s->out_padded);
    if (!job->training) {
        slot->panel = (float *)s->panel;
        slot->bias = (float *)s->bias;
        return;
    }
    slot->bias = floats(arena, s->out_padded);
    slot->bias_sum = floats(arena, s->out_padded);
    if (!s->is.conv) slot->gradient = floats(arena, steps * batch * s->out_padded);
    if (s->is.mode == SPARSE) slot->sum = floats(arena, s->is.kept);
    if (s->is.mode == SPARSE && !s->is.conv) slot->transposed = floats(arena, (int64_t)s->is.in * up(job->batch, 8));
    if (s->is.mode == DIRECT) slot->sum = floats(arena, s->is.conv ? s->back_size : panel);
    if (s->is.conv || s->is.mode == DIRECT) {
        slot->panel = floats(arena, panel);
        slot->back = floats(arena, s->back_size);
    }
    if (!s->is.conv && s->is.mode == DIRECT) slot->sum_back = floats(arena, s->back_size);
}

static void shape_places(const Plan *plan, Shape *s, Arena *arena) {
    if (s->is.conv) {
        s->position = take(arena, s->positions * (int64_t)sizeof(int32_t));
        s->cell = take(arena, s->cells * (int64_t)sizeof(int32_t));
    }
    if (!plan->trainable) return;
    s->mask_bias = take(arena, s->out_padded * 4);
    if (s->is.mode == SPARSE) {
        s->kept_in = take(arena, s->is.kept * 4);
        s->kept_out = take(arena, s->is.kept * 4);
        s->order = take(arena, s->is.kept * 4);
        s->by_in = take(arena, (s->taps + 1) * 4);
        s->by_out = take(arena, (s->is.out + 1) * 4);
    } else {
        s->mask = take(arena, (s->is.conv ? s->back_size : (int64_t)s->panels * s->taps * 16) * 4);
        if (!s->is.conv) s->mask_back = take(arena, s->back_size * 4);
    }
}

/* Lay everything out; with an empty arena this only measures. */
static void plan_places(Plan *plan, const Job *job, const uint8_t *trainable, const void *packed, Arena *arena) {
    int64_t out = 0, in = 0, back = 0, channels = 0, positions = 0, lists = 0, dense_in = 0;
    Arena weights = {(char *)packed, 0};
    memset(plan, 0, sizeof *plan);
    plan->job = job;
    plan->trainable = trainable;
    plan->first_dense = job->layers;
    for (int l = job->layers - 1; l >= 0; l--) {
        if (!job->layer[l].conv) plan->first_dense = l;
    }
#define GROW(best, value) best = (value) > best ? (value) : best
    for (int l = 0; l < job->layers; l++) {
        Shape *s = &plan->shape[l];
        *s = shape_of(&job->layer[l]);
        packed_places(s, &weights);
        shape_places(plan, s, arena);
        GROW(out, s->out_padded);
        if (s->is.conv) {
            GROW(in, s->in_stride);
            GROW(back, s->back_size);
            GROW(channels, s->is.out);
            GROW(positions, s->positions);
            GROW(lists, (int64_t)s->positions * s->is.out);
        } else {
            GROW(dense_in, s->in_stride);
        }
    }
#undef GROW
    const int64_t batch = job->batch, rows = job->chunk * batch;
    plan->slot = take(arena, (int64_t)job->chunk * job->layers * (int64_t)sizeof(Slot));
    plan->row = take(arena, rows * (int64_t)sizeof(float *));
    plan->z = floats(arena, rows * out);
    Slot unused;
    for (int i = 0; i < job->chunk * job->layers; i++) {
        Slot *slot = arena->base ? &plan->slot[i] : &unused;
        memset(slot, 0, sizeof *slot);
        slot_places(plan, &plan->shape[i % job->layers], slot, arena);
    }
    if (!job->training) return;
    plan->d = floats(arena, rows * dense_in);
    plan->dots = floats(arena, batch * job->steps * batch);
    plan->gradient = floats(arena, back);
    plan->bias_gradient = floats(arena, out);
    plan->dx[0] = floats(arena, batch * in);
    plan->dx[1] = floats(arena, batch * in);
    /* g in panels for the last product, or g transposed for a sparse mask. */
    plan->packed = floats(arena, (int64_t)up((int)batch, 8) * job->steps * out);
    plan->by_channel = take(arena, lists * (int64_t)sizeof(Entry));
    plan->by_position = take(arena, lists * (int64_t)sizeof(Entry));
    plan->channel_count = take(arena, channels * 4);
    plan->position_count = take(arena, positions * 4);
}

static void fill_tables(Plan *plan) {
    for (int l = 0; l < plan->job->layers; l++) {
        Shape *s = &plan->shape[l];
        if (plan->trainable) fill_masks(s, plan->trainable);
        if (!s->is.conv) continue;
        const Shape *next = &plan->shape[l + 1];
        const int pool = s->is.pool;
        for (int cell = 0; cell < s->cells; cell++) {
            const int y = cell / s->cells_wide, x = cell % s->cells_wide;
            if (next->is.conv) {
                s->cell[cell] = (y + next->is.pad_before) * next->row_stride + (x + next->is.pad_before) * s->is.out;
            } else {
                s->cell[cell] = cell * s->is.out;
            }
            for (int q = 0; q < s->window; q++) {
                s->position[cell * s->window + q] =
                    (y * pool + q / pool) * s->row_stride + (x * pool + q % pool) * s->is.in;
            }
        }
    }
}

EXPORT int64_t sottovoce_workspace_size(const Job *job, const uint8_t *trainable) {
    Plan plan;
    Arena arena = {NULL, 0};
    plan_places(&plan, job, trainable, NULL, &arena);
    return arena.used;
}

/* ---- forward and backward through the network ---- */

static FAST void read_record(const Job *job, const Shape *s, const void *x, int64_t record, float *to) {
    const int width = s->is.conv ? s->is.width * s->is.in : s->is.in;
    const int height = s->is.conv ? s->is.height : 1;
    const float scale = job->scale;
    for (int y = 0; y < height; y++) {
        float *line = s->is.conv ? to + (y + s->is.pad_before) * s->row_stride + s->is.pad_before * s->is.in : to;
        const int64_t first = (record * height + y) * width;
        if (job->bytes) {
            const uint8_t *from = (const uint8_t *)x + first;
            for (int i = 0; i < width; i++) line[i] = (float)from[i] * scale;
        } else {
            const float *from = (const float *)x + first;
            for (int i = 0; i < width; i++) line[i] = from[i] * scale;
        }
    }
}

static float *input_rows(const Plan *plan, int layer, const Slot *slot, int step, int batch) {
    const Shape *s = &plan->shape[layer];
    const int64_t past = s->is.mode == LOW_RANK && plan->job->training ? (int64_t)step * batch : 0;
    return slot->x + past * s->in_stride;
}

static float *gradient_rows(const Plan *plan, int layer, const Slot *slot, int step, int batch) {
    const Shape *s = &plan->shape[layer];
    return slot->gradient + (s->is.mode == LOW_RANK ? (int64_t)step * batch : 0) * s->out_padded;
}

static FAST void conv_stack(Plan *plan, Slot *slots, int step, int batch) {
    for (int l = 0; l < plan->first_dense; l++) {
        const Shape *s = &plan->shape[l];
        float *out = input_rows(plan, l + 1, &slots[l + 1], step, batch);
        for (int r = 0; r < batch; r++) {
            conv_forward(s, slots[l].panel, slots[l].bias, slots[l].x + r * s->in_stride,
                         out + r * plan->shape[l + 1].in_stride,
                         slots[l].where + (int64_t)r * s->cells * s->out_padded);
        }
    }
}

/* z rows of every client of the chunk through one dense layer. */
static FAST void dense_forward(Plan *plan, int l, int clients, int step, const int32_t *batch) {
    const Job *job = plan->job;
    const Shape *s = &plan->shape[l];
    int rows = 0;
    for (int k = 0; k < clients; k++) {
        const Slot *slot = &plan->slot[k * job->layers + l];
        const float *x = input_rows(plan, l, slot, step, batch[k]);
        for (int r = 0; r < batch[k]; r++) plan->row[rows + r] = x + r * s->in_stride;
        if (s->is.mode == DIRECT) {
            multiply(plan->row + rows, batch[k], s->is.in, slot->panel, s->panels,
                     plan->z + (int64_t)rows * s->out_padded, s->out_padded);
        }
        rows += batch[k];
    }
    if (s->is.mode != DIRECT) multiply(plan->row, rows, s->is.in, s->panel, s->panels, plan->z, s->out_padded);

    float *z = plan->z;
    for (int k = 0; k < clients; z += (int64_t)batch[k++] * s->out_padded) {
        const Slot *slot = &plan->slot[k * job->layers + l];
        const int count = batch[k], past = step * count;
        if (s->is.mode == LOW_RANK && past) {
            const float *x = input_rows(plan, l, slot, step, count);
            dots(x, count, slot->x, past, s->in_stride, -job->lr, plan->dots);
            for (int r = 0; r < count; r++) plan->row[r] = plan->dots + (int64_t)r * past;
            for (int p = 0; p < s->panels; p++) {
                product(plan->row, count, 0, 1, 0, past, slot->gradient + p * 16, s->out_padded, z + p * 16,
                        s->out_padded, 1);
            }
        }
        if (s->is.mode == SPARSE && job->training) {
            transpose_batch(slot->x, count, s->in_stride, s->is.in, slot->transposed);
            if (step) kept_forward(s, slot, count, z);
        }
        float *next = l + 1 < job->layers ? input_rows(plan, l + 1, slot + 1, step, count) : z;
        for (int r = 0; r < count; r++) {
            const float *from = z + (int64_t)r * s->out_padded;
            float *to = next + (int64_t)r * s->out_padded;
            for (int o = 0; o < s->out_padded; o += 8) {
                const __m256 v = _mm256_add_ps(_mm256_loadu_ps(from + o), _mm256_loadu_ps(slot->bias + o));
                /* The second operand wins when either is NaN, so NaN goes through. */
                _mm256_storeu_ps(to + o, s->is.relu ? _mm256_max_ps(_mm256_setzero_ps(), v) : v);
            }
        }
    }
}

/* Replace each row of logits by the gradient of its share of the mean loss. */
static void loss_gradient(const Job *job, const float *z, int classes, int64_t label, float share, float *g) {
    if (job->binary) {
        g[0] = (1 / (1 + expf(-z[0])) - (float)label) * share;
        return;
    }
    float best = z[0], sum = 0;
    for (int c = 1; c < classes; c++) best = z[c] > best ? z[c] : best;
    for (int c = 0; c < classes; c++) sum += g[c] = expf(z[c] - best);
    for (int c = 0; c < classes; c++) g[c] = (g[c] / sum - (float)(c == label)) * share;
}

/* d = g @ W_t^T for every client, then this layer's step. */
static FAST void dense_backward(Plan *plan, int l, int clients, int step, const int32_t *batch) {
    const Job *job = plan->job;
    const Shape *s = &plan->shape[l];
    const int below = l > job->lowest, panels = (int)(s->in_stride / 16);
    int rows = 0;
    for (int k = 0; k < clients; k++) {
        const Slot *slot = &plan->slot[k * job->layers + l];
        const float *g = gradient_rows(plan, l, slot, step, batch[k]);
        for (int r = 0; r < batch[k]; r++) plan->row[rows + r] = g + (int64_t)r * s->out_padded;
        if (below && s->is.mode == DIRECT) {
            multiply(plan->row + rows, batch[k], s->is.out, slot->back, panels, plan->d + rows * s->in_stride,
                     s->in_stride);
        }
        rows += batch[k];
    }
    if (below && s->is.mode != DIRECT) {
        multiply(plan->row, rows, s->is.out, s->back, panels, plan->d, s->in_stride);
    }
    float *d = plan->d;
    for (int k = 0; k < clients; d += batch[k++] * s->in_stride) {
        const Slot *slot = &plan->slot[k * job->layers + l];
        const int count = batch[k], past = step * count;
        const float *x = input_rows(plan, l, slot, step, count), *g = gradient_rows(plan, l, slot, step, count);
        if (s->is.mode == LOW_RANK && below && past) {
            dots(g, count, slot->gradient, past, s->out_padded, -job->lr, plan->dots);
            for (int r = 0; r < count; r++) plan->row[r] = plan->dots + (int64_t)r * past;
            for (int p = 0; p < panels; p++) {
                product(plan->row, count, 0, 1, 0, past, slot->x + p * 16, s->in_stride, d + p * 16, s->in_stride, 1);
            }
        }
        if (s->is.mode == SPARSE) {
            transpose_batch(g, count, s->out_padded, s->is.out, plan->packed);
            if (below && step) kept_backward(s, slot, count, plan->packed, d);
            kept_step(s, slot, count, plan->packed, -job->lr);
        }
        if (s->is.mode == DIRECT) {
            step_dense(count, x, s->in_stride, s->is.in, g, s->out_padded, s->panels, slot->sum, s->panel, slot->panel,
                       s->mask, -job->lr);
            if (below) {
                step_dense(count, g, s->out_padded, s->is.out, x, s->in_stride, panels, slot->sum_back, s->back,
                           slot->back, s->mask_back, -job->lr);
            }
        }
        memset(plan->bias_gradient, 0, (size_t)s->out_padded * sizeof(float));
        for (int r = 0; r < count; r++) {
            for (int o = 0; o < s->out_padded; o++) plan->bias_gradient[o] += g[(int64_t)r * s->out_padded + o];
        }
        step_bias(s, slot, plan->bias_gradient, -job->lr);

        if (!below || l == plan->first_dense) continue;
        float *under = gradient_rows(plan, l - 1, slot - 1, step, count);
        for (int64_t i = 0; i < count * s->in_stride; i++) {
            under[i] = plan->shape[l - 1].is.relu && x[i] <= 0 ? 0 : d[i];
        }
    }
}

static void start_client(Plan *plan, Slot *slots, int batch) {
    for (int l = 0; l < plan->job->layers; l++) {
        const Shape *s = &plan->shape[l];
        Slot *slot = &slots[l];
        const size_t panel = (size_t)s->panels * s->taps * 16 * sizeof(float);
        const size_t back = (size_t)s->back_size * sizeof(float), bias = (size_t)s->out_padded * sizeof(float);
        const int64_t steps = s->is.mode == LOW_RANK && plan->job->training ? plan->job->steps : 1;
        /* The borders of images and the padding of rows are never written again. */
        memset(slot->x, 0, (size_t)(steps * batch * s->in_stride) * sizeof(float));
        if (!plan->job->training) continue;
        memcpy(slot->bias, s->bias, bias);
        memset(slot->bias_sum, 0, bias);
        if (!s->is.conv) memset(slot->gradient, 0, (size_t)(steps * batch * s->out_padded) * sizeof(float));
        if (s->is.mode == SPARSE) memset(slot->sum, 0, (size_t)s->is.kept * sizeof(float));
        if (s->is.mode == DIRECT) memset(slot->sum, 0, s->is.conv ? back : panel);
        if (slot->sum_back) memset(slot->sum_back, 0, back);
        if (slot->panel) memcpy(slot->panel, s->panel, panel);
        if (slot->back) memcpy(slot->back, s->back, back);
    }
}

static FAST void write_update(Plan *plan, const Slot *slots, int batch, float *update) {
    const Job *job = plan->job;
    for (int l = 0; l < job->layers; l++) {
        const Shape *s = &plan->shape[l];
        const Slot *slot = &slots[l];
        float *to = update + s->is.weight;
        memcpy(update + s->is.bias, slot->bias_sum, (size_t)s->is.out * sizeof(float));
        if (s->is.mode == LOW_RANK) {
            write_outer(job->steps * batch, slot->x, s->in_stride, s->is.in, slot->gradient, s->out_padded, s->is.out,
                        -job->lr, plan->packed, to);
        } else if (s->is.mode == SPARSE) {
            memset(to, 0, (size_t)s->taps * s->is.out * sizeof(float));
            for (int64_t e = 0; e < s->is.kept; e++) {
                to[(int64_t)(s->is.conv ? s->order[e] : s->kept_in[e]) * s->is.out + s->kept_out[e]] = slot->sum[e];
            }
        } else {
            for (int tap = 0; tap < s->taps; tap++, to += s->is.out) {
                const float *from = s->is.conv ? slot->sum + back_place(s, tap / s->taps_row, tap % s->taps_row) : NULL;
                for (int o = 0; o < s->is.out; o++) {
                    to[o] = from ? from[(int64_t)o * s->block]
                                 : slot->sum[((int64_t)(o / 16) * s->taps + tap) * 16 + o % 16];
                }
            }
        }
    }
}

/* Write one update a client. `index` lists the records of each batch, client by client and step by step; `share` is
 * the weight of one record in its client's loss. */
EXPORT FAST void sottovoce_updates(const Job *job, const void *packed, const uint8_t *trainable, int32_t clients,
                                   const void *const *x, const int64_t *const *y, const int64_t *index,
                                   const int32_t *batch, const float *share, void *workspace, float *const *updates) {
    Plan plan;
    Arena arena = {workspace, 0};
    plan_places(&plan, job, trainable, packed, &arena);
    fill_tables(&plan);
    const int last = job->layers - 1;
    for (int first = 0; first < clients; first += job->chunk) {
        const int count = smaller(job->chunk, clients - first);
        const int64_t *start = index;
        for (int k = 0; k < count; k++) start_client(&plan, plan.slot + k * job->layers, batch[first + k]);
        for (int step = 0; step < job->steps; step++) {
            index = start;
            for (int k = 0; k < count; k++) {
                const int size = batch[first + k];
                const int64_t *records = index + (int64_t)step * size;
                Slot *slots = plan.slot + k * job->layers;
                float *to = input_rows(&plan, 0, slots, step, size);
                for (int r = 0; r < size; r++) {
                    read_record(job, &plan.shape[0], x[first + k], records[r], to + r * plan.shape[0].in_stride);
                }
                conv_stack(&plan, slots, step, size);
                index += (int64_t)job->steps * size;
            }
            for (int l = plan.first_dense; l < job->layers; l++) {
                dense_forward(&plan, l, count, step, batch + first);
            }
            index = start;
            const float *z = plan.z;
            for (int k = 0; k < count; k++) {
                const int size = batch[first + k], stride = plan.shape[last].out_padded;
                float *g = gradient_rows(&plan, last, &plan.slot[k * job->layers + last], step, size);
                for (int r = 0; r < size; r++, z += stride, g += stride) {
                    loss_gradient(job, z, job->layer[last].out, y[first + k][index[(int64_t)step * size + r]],
                                  share[first + k], g);
                }
                index += (int64_t)job->steps * size;
            }
            for (int l = last; l >= plan.first_dense && l >= job->lowest; l--) {
                dense_backward(&plan, l, count, step, batch + first);
            }
            const float *d = plan.d;
            for (int k = 0; k < count; k++) {
                const int64_t wide = plan.shape[plan.first_dense].in_stride;
                float *gradient = (float *)d;
                int64_t stride = wide;
                for (int l = plan.first_dense - 1; l >= job->lowest; l--) {
                    conv_backward(&plan, l, &plan.slot[k * job->layers + l], batch[first + k], &gradient, &stride,
                                  -job->lr);
                }
                d += batch[first + k] * wide;
            }
        }
        for (int k = 0; k < count; k++) {
            write_update(&plan, plan.slot + k * job->layers, batch[first + k], updates[first + k]);
        }
    }
}

/* Write the logits of `records` records, job->batch at a time. */
EXPORT FAST void sottovoce_scores(const Job *job, const void *packed, int64_t records, const void *x, void *workspace,
                                  float *scores) {
    Plan plan;
    Arena arena = {workspace, 0};
    plan_places(&plan, job, NULL, packed, &arena);
    fill_tables(&plan);
    const Shape *last = &plan.shape[job->layers - 1];
    start_client(&plan, plan.slot, job->batch);
    for (int64_t first = 0; first < records; first += job->batch) {
        const int32_t count = (int32_t)(records - first < job->batch ? records - first : job->batch);
        for (int r = 0; r < count; r++) {
            read_record(job, &plan.shape[0], x, first + r, plan.slot[0].x + r * plan.shape[0].in_stride);
        }
        conv_stack(&plan, plan.slot, 0, count);
        for (int l = plan.first_dense; l < job->layers; l++) dense_forward(&plan, l, 1, 0, &count);
        for (int r = 0; r < count; r++) {
            memcpy(scores + (first + r) * last->is.out, plan.z + (int64_t)r * last->out_padded,
                   (size_t)last->is.out * sizeof(float));
        }
    }
}

EXPORT int sottovoce_supported(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

#else /* not a processor or compiler that this is written for: fast.py reads this and leaves the work to torch */

#if defined(__GNUC__) || defined(__clang__)
#define EXPORT __attribute__((visibility("default")))
#else
#define EXPORT __declspec(dllexport)
#endif
EXPORT int sottovoce_supported(void) { return 0; }

#endif
