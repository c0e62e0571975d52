/* Go forward and back through a convolution with its pool and ReLU. */
#ifndef SOTTOVOCE_CONV_H
#define SOTTOVOCE_CONV_H

#include "kernels_dense.h"

/* Reduce `window` rows of 16 convolution outputs to one; keep which was first largest, or INACTIVE after the ReLU. */
TEMPLATE void pool_cell(const float *v, int stride, int window, const float *bias, int relu, float *out, int width,
                        uint8_t *where) {
    float line[16];
    float *place = width == 16 ? out : line;
    for (int at = 0; at < 16; at += LANES) {
        Part best = part_of(v + at);
        Mask index = {0};
        for (int q = 1; q < window; q++) {
            const Part next = part_of(v + q * stride + at);
            /* NaN wins, as in torch, and stays: nothing is greater than it. */
            const Mask wins = (Mask)(next > best) | (Mask)(next != next);
            best = select_part(wins, next, best);
            index = (Mask)select_part(wins, (Part)((Mask){0} + q), (Part)index);
        }
        best += part_of(bias + at);
        if (relu) {
            const Mask dead = (Mask)(best <= all_part(0));
            index |= dead & ((Mask){0} + INACTIVE);
            best = (Part)(~dead & (Mask)best);
        }
        put_part(place + at, best);
        *(LooseSmall *)(where + at) = __builtin_convertvector(index, Small);
    }
    if (width < 16) memcpy(out, line, (size_t)width * sizeof(float));
}

/* Where a cell's first patch lies, and where its outputs and what the pool chose go. */
typedef struct {
    const float *x;
    float *out;
    uint8_t *where;
} Cell;

static Cell cell_of(const Shape *s, const float *x, float *out, uint8_t *where, int number) {
    return (Cell){x + s->position[number * s->window], out + s->cell[number], where + (ptrdiff_t)number * s->out_padded};
}

/* Pool and rectify 16 channels of a cell. */
TEMPLATE void pool_panel(const Shape *s, const float *outputs, int stride, const float *bias, int p, const Cell *cell) {
    pool_cell(outputs, stride, s->window, bias + p * 16, s->is.relu, cell->out + p * 16,
              smaller(16, s->is.out - p * 16), cell->where + p * 16);
}

/* Convolve, pool and rectify cells, panels p to p + lines. */
static void conv_cells(const Shape *s, const float *panel, const float *bias, int p, int lines, const Cell *cell,
                       int cells) {
    _Alignas(64) float outputs[GROUP * 16 * LINES];
    const float *rows[GROUP];
    const int kernel = s->is.kernel, window = s->window, wide = 16 * lines;
    const int batch = s->taps_row >= DEPTH / 2 ? 1 : smaller(kernel, DEPTH / s->taps_row);
    const ptrdiff_t apart = (ptrdiff_t)s->taps * 16;
    for (int first = 0; first < cells; first += GROUP / window) {
        const int count = smaller(GROUP / window, cells - first);
        for (int i = 0; i < count * window; i++) rows[i] = cell[first + i / window].x + s->position[i % window];
        for (int row = 0; row < kernel; row += batch) {
            product(lines, rows, count * window, (ptrdiff_t)row * s->row_stride, smaller(batch, kernel - row),
                    s->row_stride, s->taps_row, panel + p * apart + (ptrdiff_t)row * s->taps_row * 16, 16, apart,
                    outputs, wide, row > 0);
        }
        for (int i = 0; i < count; i++) {
            for (int l = 0; l < lines; l++) {
                pool_panel(s, outputs + i * window * wide + l * 16, wide, bias, p + l, &cell[first + i]);
            }
        }
    }
}

/* Convolve, pool and rectify one padded image. */
static void conv_forward(const Shape *s, const float *panel, const float *bias, const float *x, float *out,
                         uint8_t *where) {
    Cell cell[GROUP];
    for (int first = 0; first < s->cells; first += GROUP) {
        const int count = smaller(GROUP, s->cells - first);
        for (int i = 0; i < count; i++) cell[i] = cell_of(s, x, out, where, first + i);
        for (int p = 0; p < s->panels; p += LINES) {
            conv_cells(s, panel, bias, p, smaller(LINES, s->panels - p), cell, count);
        }
    }
}

/* List the gradients that are not zero, by channel (for the kernel) and, if asked, by position (for the image below);
 * add those of each channel to its bias, one image at a time. */
static void conv_lists(Plan *plan, const Shape *s, const float *gradient, const uint8_t *where, int below,
                       float *bias) {
    Entry *by_channel = plan->by_channel, *by_position = plan->by_position;
    int32_t *channel_count = plan->channel_count, *position_count = plan->position_count;
    float *sums = plan->sums;
    memset(channel_count, 0, (size_t)s->is.out * sizeof(int32_t));
    memset(sums, 0, (size_t)s->out_padded * sizeof(float));
    if (below) memset(position_count, 0, (size_t)s->positions * sizeof(int32_t));
    for (int cell = 0; cell < s->cells; cell++, where += s->out_padded) {
        const float *values = gradient + s->cell[cell];
        for (int first = 0; first < s->is.out; first += 8) {
            unsigned live = 0;
            if (first + 8 <= s->is.out) {
                for (int at = 0; at < 8; at += LANES) {
                    const Mask q = __builtin_convertvector(*(const LooseSmall *)(where + first + at), Mask);
                    const Part value = part_of(values + first + at);
                    const Mask some = ~(Mask)(q == INACTIVE) & (Mask)(value != all_part(0));
                    live |= bits_of(some) << at;
                    put_part(sums + first + at, part_of(sums + first + at) + (Part)(some & (Mask)value));
                }
            } else {
                for (int c = first; c < s->is.out; c++) {
                    if (where[c] == INACTIVE || values[c] == 0) continue;
                    live |= 1u << (c - first);
                    sums[c] += values[c];
                }
            }
            for (; live; live &= live - 1) {
                const int c = first + __builtin_ctz(live);
                const int position = cell * s->window + where[c];
                by_channel[(int64_t)c * s->cells + channel_count[c]++] = (Entry){s->position[position], values[c]};
                if (below) {
                    by_position[(int64_t)position * s->is.out + position_count[position]++] = (Entry){c, values[c]};
                }
            }
        }
    }
    for (int c = 0; c < s->is.out; c++) bias[c] += sums[c];
}

/* Block values are read as lines where a line is one vector and the block is whole lines, else as vectors. */
#define BLOCK(NAME, Piece, WIDE, READ, PUT, ALL, FUSED)                                                               \
    /* to += sum over entries of value * (a block of the patch at the entry). */                                      \
    TEMPLATE void gather_##NAME(const int rows, const int pieces, const Entry *entry, int count, const float *x,      \
                                ptrdiff_t row_stride, float *to) {                                                    \
        Piece sum[14];                                                                                                \
        for (int i = 0; i < rows * pieces; i++) sum[i] = READ(to + WIDE * i);                                         \
        for (int e = 0; e < count; e++) {                                                                             \
            const Piece value = ALL(entry[e].value);                                                                  \
            const float *patch = x + entry[e].at;                                                                     \
            for (int r = 0; r < rows; r++) {                                                                          \
                for (int v = 0; v < pieces; v++) {                                                                    \
                    sum[r * pieces + v] = FUSED(value, READ(patch + r * row_stride + WIDE * v), sum[r * pieces + v]); \
                }                                                                                                     \
            }                                                                                                         \
        }                                                                                                             \
        for (int i = 0; i < rows * pieces; i++) PUT(to + WIDE * i, sum[i]);                                           \
    }                                                                                                                 \
    /* patch += sum over entries of value * (a block of the channel's kernel). */                                     \
    TEMPLATE void scatter_##NAME(const int rows, const int pieces, const Entry *entry, int count,                     \
                                 const float *kernel, ptrdiff_t row_stride, float *patch) {                           \
        Piece sum[14];                                                                                                \
        for (int r = 0; r < rows; r++) {                                                                              \
            for (int v = 0; v < pieces; v++) sum[r * pieces + v] = READ(patch + r * row_stride + WIDE * v);           \
        }                                                                                                             \
        for (int e = 0; e < count; e++) {                                                                             \
            const Piece value = ALL(entry[e].value);                                                                  \
            const float *block = kernel + (ptrdiff_t)entry[e].at * (rows * pieces * WIDE);                            \
            for (int i = 0; i < rows * pieces; i++) sum[i] = FUSED(value, READ(block + WIDE * i), sum[i]);            \
        }                                                                                                             \
        for (int r = 0; r < rows; r++) {                                                                              \
            for (int v = 0; v < pieces; v++) PUT(patch + r * row_stride + WIDE * v, sum[r * pieces + v]);             \
        }                                                                                                             \
    }

BLOCK(vectors, Vector, 8, load, store, all, fused)
#if LEVEL == 2
BLOCK(lines, Line, 16, line_of, put_line, line_all, line_fused)
#define BY(VERB, R, V, ...) \
    if (V % 2) VERB##_vectors(R, V, __VA_ARGS__); else VERB##_lines(R, V / 2, __VA_ARGS__)
#else
#define BY(VERB, R, V, ...) VERB##_vectors(R, V, __VA_ARGS__)
#endif

/* The shapes of block that shape_of() can choose, with constants for the compiler to unroll. */
#define EACH_BLOCK(CASE)                                                                                            \
    CASE(1, 1) CASE(1, 2) CASE(1, 3) CASE(1, 4) CASE(1, 5) CASE(1, 6) CASE(1, 7) CASE(1, 8) CASE(1, 9) CASE(1, 10)  \
    CASE(3, 1) CASE(3, 2) CASE(5, 1) CASE(5, 2) CASE(7, 1) EACH_WIDE_BLOCK(CASE)
#if LEVEL == 2
#define EACH_WIDE_BLOCK(CASE) CASE(1, 12) CASE(1, 14) CASE(1, 16) CASE(1, 18) CASE(1, 20)
#else
#define EACH_WIDE_BLOCK(CASE)
#endif

static void conv_kernel_gradient(const Plan *plan, const Shape *s, const float *x, float *gradient) {
    for (int block = 0; block < s->blocks; block++) {
        const float *from = x + block / s->chunks * s->block_rows * s->row_stride +
                            block % s->chunks * s->block_vectors * 8;
        for (int c = 0; c < s->is.out; c++) {
            const Entry *entry = plan->by_channel + (int64_t)c * s->cells;
            const int count = plan->channel_count[c];
            float *to = gradient + ((int64_t)block * s->is.out + c) * s->block;
            switch (s->block_rows * 32 + s->block_vectors) {
#define CASE(R, V) \
    case R * 32 + V: BY(gather, R, V, entry, count, from, s->row_stride, to); break;
                EACH_BLOCK(CASE)
#undef CASE
            default: break;
            }
        }
    }
}

static void conv_image_gradient(const Plan *plan, const Shape *s, const float *back, float *dx) {
    memset(dx, 0, (size_t)s->in_stride * sizeof(float));
    const int across = s->is.kernel / s->block_rows;
    for (int row = 0; row < across; row++) {
        float *to = dx + row * s->block_rows * s->row_stride;
        const float *kernel = back + (int64_t)row * s->chunks * s->is.out * s->block;
        for (int position = 0; position < s->positions; position++) {
            const Entry *entry = plan->by_position + (int64_t)position * s->is.out;
            const int count = plan->position_count[position];
            if (!count) continue;
            for (int chunk = 0; chunk < s->chunks; chunk++) {
                float *patch = to + s->position[position] + chunk * s->block_vectors * 8;
                const float *block = kernel + (int64_t)chunk * s->is.out * s->block;
                switch (s->block_rows * 32 + s->block_vectors) {
#define CASE(R, V) \
    case R * 32 + V: BY(scatter, R, V, entry, count, block, s->row_stride, patch); break;
                    EACH_BLOCK(CASE)
#undef CASE
                default: break;
                }
            }
        }
    }
}

/* The same gradient for the kept taps alone; entry e of channel c reads the input at kept_in[e] from the patch. */
static void conv_kept_gradient(const Plan *plan, const Shape *s, const float *x, float *gradient) {
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

static void step_bias(const Shape *s, const Slot *slot, const float *gradient, float rate) {
    const Vector factor = all(rate);
    if (slot->bias == s->bias) { /* of a unit: there is nothing to step */
        for (int o = 0; o < s->out_padded; o += 8) store(slot->bias_sum + o, times(load(gradient + o), factor));
        return;
    }
    for (int o = 0; o < s->out_padded; o += 8) {
        step_vector(slot->bias_sum + o, s->bias + o, slot->bias + o,
                    masked(load(gradient + o), s->mask_bias ? s->mask_bias + o : NULL), factor);
    }
}

static void step_conv(const Shape *s, const Slot *slot, float *gradient, float rate) {
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
    const Vector factor = all(rate);
    if (slot->back == s->back) { /* of a unit */
        for (int64_t i = 0; i < s->back_size; i += 8) store(slot->sum + i, times(load(gradient + i), factor));
        return;
    }
    /* The lanes past a row of taps have gathered neighbours of the patch; they must stay zero in the weights. */
    for (int row = 0; row < s->is.kernel; row++) {
        for (int column = s->taps_row; column < s->chunks * s->block_vectors * 8; column++) {
            float *place = gradient + back_place(s, row, column);
            for (int c = 0; c < s->is.out; c++) place[(int64_t)c * s->block] = 0;
        }
    }
    for (int64_t i = 0; i < s->back_size; i += 8) {
        step_vector(slot->sum + i, s->back + i, slot->back + i,
                    masked(load(gradient + i), s->mask ? s->mask + i : NULL), factor);
    }
    panels_from_back(slot->panel, slot->back, s);
}

/* Go back through a convolution for a whole batch and take its step; `d` is replaced by the gradient below. */
static void conv_backward(Plan *plan, int layer, const Slot *slot, int batch, float **d, int64_t *d_stride,
                               float rate) {
    const Shape *s = &plan->shape[layer];
    const int below = layer > plan->job->lowest, sparse = s->is.mode == SPARSE;
    float *bias = plan->bias_gradient;
    float *dx = plan->dx[*d == plan->dx[0]];
    memset(plan->gradient, 0, (size_t)(sparse ? s->is.kept : s->back_size) * sizeof(float));
    memset(bias, 0, (size_t)s->out_padded * sizeof(float));
    for (int r = 0; r < batch; r++) {
        const float *x = slot->x + r * s->in_stride;
        conv_lists(plan, s, *d + r * *d_stride, slot->where + (int64_t)r * s->cells * s->out_padded, below, bias);
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

#endif
