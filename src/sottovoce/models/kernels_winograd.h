/* Convolve by 5 x 5 and pool by 2 with 36 products in place of 100: Winograd's F(2 x 2, 5 x 5), one tile a cell.
 *
 * A tile is the 6 x 6 inputs below a cell. Inputs and kernel are *spread* to 36 values, multiplied channel by channel,
 * and brought back to the four outputs of the cell. The points are 0, 1, -1, 1/2, -2 and infinity: of those tried they
 * err least, about as a plain float32 product does (4e-7 of the outputs' deviation).
 *
 * Rounding must decide nothing that is a tie. Backgrounds are constant, so outputs of a pool are often equal, and a ReLU
 * often sees zero: then a product in any fixed order gives equal values, and this does not. So where the two largest of a
 * pool, or the largest and the ReLU's zero, are closer than CLOSE of the largest value that tile and kernel can give, the
 * cell is convolved again the plain way. CLOSE is eight times the largest error that was seen on W, and 4 % of the cells
 * are that close, nearly all of them true ties. NaN is never far from anything, so it is convolved the plain way, too. */
#ifndef SOTTOVOCE_WINOGRAD_H
#define SOTTOVOCE_WINOGRAD_H

#include "kernels_conv.h"

#define CLOSE 2e-6f
enum { POINTS = 36 };

/* Six inputs of a row or column, spread. The steps share what they can; all factors are exact. */
TEMPLATE void spread_inputs(const Line *d, int stride, Line *to) {
    const Line half = line_all(-0.5f), more = line_all(1.5f), two = line_all(2);
    const Line a = line_minus(d[4 * stride], d[2 * stride]), b = line_minus(d[3 * stride], d[stride]);
    const Line even = line_fused(more, d[3 * stride], a), odd = line_fused(more, d[2 * stride], b);
    to[0] = line_plus(line_fused(more, b, a), line_minus(d[0], d[2 * stride]));
    to[1] = line_plus(even, odd);
    to[2] = line_minus(even, odd);
    to[3] = line_fused(two, b, a);
    to[4] = line_fused(half, b, a);
    to[5] = line_minus(line_fused(more, a, line_minus(d[5 * stride], d[3 * stride])), b);
}

/* Five weights of a row or column, spread but for the factors of SCALE. */
TEMPLATE void spread_weights(const Line *g, int stride, Line *to) {
    const Line even = line_plus(line_plus(g[0], g[2 * stride]), g[4 * stride]), odd = line_plus(g[stride], g[3 * stride]);
    Line half = g[4 * stride], two = g[4 * stride];
    for (int i = 3; i >= 0; i--) {
        half = line_fused(line_all(0.5f), half, g[i * stride]);
        two = line_fused(line_all(-2), two, g[i * stride]);
    }
    to[0] = g[0];
    to[1] = line_plus(even, odd);
    to[2] = line_minus(even, odd);
    to[3] = half;
    to[4] = two;
    to[5] = g[4 * stride];
}

/* The two outputs of six products. */
TEMPLATE void gather_outputs(const Line *m, int stride, Line *to) {
    const Line one = m[stride], other = m[2 * stride], half = m[3 * stride], two = m[4 * stride];
    to[0] = line_plus(line_plus(m[0], line_plus(one, other)), line_plus(half, two));
    to[1] = line_plus(line_fused(line_all(0.5f), half, line_minus(one, other)),
                      line_fused(line_all(-2), two, m[5 * stride]));
}

/* Spread the kernel of every pair of channels, and note how close outputs of a channel may be for a tile of norm 1. */
static void spread_kernel(const Shape *s, const float *panel, float *spread, float *close) {
    static const float SCALE[6] = {1, 1.0f / 3, -1.0f / 3, -16.0f / 15, 1.0f / 15, 1};
    const ptrdiff_t point = (ptrdiff_t)s->panels * s->is.in * 16;
    for (int p = 0; p < s->panels; p++) {
        Line squares = line_all(0);
        for (int c = 0; c < s->is.in; c++) {
            Line taps[25], columns[5][6], row[6];
            for (int tap = 0; tap < 25; tap++) {
                taps[tap] = line_of(panel + ((ptrdiff_t)p * s->taps + tap * s->is.in + c) * 16);
                squares = line_fused(taps[tap], taps[tap], squares);
            }
            for (int x = 0; x < 5; x++) spread_weights(taps + x, 5, columns[x]);
            for (int y = 0; y < 6; y++) {
                spread_weights(&columns[0][y], 6, row);
                for (int x = 0; x < 6; x++) {
                    put_line(spread + (y * 6 + x) * point + ((ptrdiff_t)p * s->is.in + c) * 16,
                             line_times(row[x], line_all(SCALE[y] * SCALE[x])));
                }
            }
        }
        put_line(close + p * 16, squares);
        for (int o = p * 16; o < p * 16 + 16; o++) close[o] = o < s->is.out ? CLOSE * sqrtf(close[o]) : -1;
    }
}

/* Spread the tile of a cell; return the norm of its inputs. */
static float spread_tile(const Shape *s, const float *x, float *to) {
    const int in = s->is.in;
    Line squares[6], sum = line_all(0);
    for (int row = 0; row < 6; row++) squares[row] = line_all(0);
    for (int c = 0; c < in; c += 16) {
        Line tile[6], columns[6][6];
        for (int column = 0; column < 6; column++) {
            for (int row = 0; row < 6; row++) {
                tile[row] = line_of(x + (ptrdiff_t)row * s->row_stride + column * in + c);
                squares[row] = line_fused(tile[row], tile[row], squares[row]);
            }
            spread_inputs(tile, 1, columns[column]);
        }
        for (int row = 0; row < 6; row++) {
            spread_inputs(&columns[0][row], 6, tile);
            for (int column = 0; column < 6; column++) put_line(to + (row * 6 + column) * in + c, tile[column]);
        }
    }
    float lanes[16];
    for (int row = 0; row < 6; row++) sum = line_plus(sum, squares[row]);
    put_line(lanes, sum);
    return sqrtf(total(plus(load(lanes), load(lanes + 8))));
}

/* Tell whether rounding may decide which of four rows of outputs is the largest, or what the ReLU makes of it. */
TEMPLATE int undecided(const float *v, const float *bias, int relu, const float *close, float norm) {
    unsigned found = 0;
    for (int at = 0; at < 16; at += LANES) {
        const Part a = part_of(v + at), b = part_of(v + 16 + at), c = part_of(v + 32 + at), d = part_of(v + 48 + at);
        const Mask first = (Mask)(a > b), last = (Mask)(c > d);
        const Part high = select_part(first, a, b), other = select_part(last, c, d);
        const Part low = select_part(first, b, a), rest = select_part(last, d, c);
        const Mask wins = (Mask)(high > other);
        const Part best = select_part(wins, high, other), third = select_part(wins, other, high);
        const Part fourth = select_part((Mask)(low > rest), low, rest);
        const Part second = select_part((Mask)(third > fourth), third, fourth);
        const Part limit = part_of(close + at) * all_part(norm), value = best + part_of(bias + at);
        Mask decided = (Mask)(best - second > limit);
        if (relu) decided = (decided & (Mask)(value > limit)) | (Mask)(value < -limit);
        decided |= (Mask)(limit == all_part(0)); /* no inputs: all four are exact */
        /* The sum of all four is NaN where one is; comparisons above may have passed it over. */
        decided &= (Mask)(a + b + c + d == a + b + c + d);
        found |= bits_of(~decided);
    }
    return found != 0;
}

/* Convolve, pool and rectify one panel of cells from their products; list those that must be convolved the plain way. */
static void close_cells(const Plan *plan, const Shape *s, const Slot *slot, const float *products, int wide, int p,
                        const Cell *cell, const float *norm, int count, int first) {
    _Alignas(64) float outputs[4 * 16];
    int32_t *again = plan->again + (ptrdiff_t)p * plan->job->batch * s->cells;
    for (int i = 0; i < count; i++, products += POINTS * wide) {
        Line halves[6][2], pair[2], line[6];
        for (int row = 0; row < 6; row++) {
            for (int column = 0; column < 6; column++) line[column] = line_of(products + (row * 6 + column) * wide);
            gather_outputs(line, 1, halves[row]);
        }
        for (int x = 0; x < 2; x++) {
            gather_outputs(&halves[0][x], 2, pair);
            put_line(outputs + x * 16, pair[0]);
            put_line(outputs + (2 + x) * 16, pair[1]);
        }
        if (undecided(outputs, slot->bias + p * 16, s->is.relu, plan->close + p * 16, norm[i])) {
            again[plan->again_count[p]++] = first + i;
        } else {
            pool_panel(s, outputs, 16, slot->bias, p, &cell[i]);
        }
    }
}

static Cell batch_cell(const Shape *s, const Slot *slot, float *out, ptrdiff_t out_stride, int number) {
    const int image = number / s->cells;
    return cell_of(s, slot->x + image * s->in_stride, out + image * out_stride,
                   slot->where + (ptrdiff_t)image * s->cells * s->out_padded, number % s->cells);
}

/* Convolve, pool and rectify a batch of padded images. */
static void winograd_forward(const Plan *plan, const Shape *s, const Slot *slot, int batch, float *out,
                             ptrdiff_t out_stride) {
    Cell cell[TILES];
    float norm[TILES];
    const float *rows[TILES];
    const int in = s->is.in, cells = batch * s->cells;
    const ptrdiff_t panel = (ptrdiff_t)in * 16;
    memset(plan->again_count, 0, (size_t)s->panels * sizeof(int32_t));
    for (int first = 0; first < cells; first += TILES) {
        const int count = smaller(TILES, cells - first);
        for (int i = 0; i < count; i++) {
            cell[i] = batch_cell(s, slot, out, out_stride, first + i);
            norm[i] = spread_tile(s, cell[i].x, plan->tiles + (ptrdiff_t)i * POINTS * in);
        }
        for (int p = 0; p < s->panels; p += LINES) {
            const int lines = smaller(LINES, s->panels - p), wide = 16 * lines;
            for (int point = 0; point < POINTS; point++) {
                for (int i = 0; i < count; i++) rows[i] = plan->tiles + ((ptrdiff_t)i * POINTS + point) * in;
                product(lines, rows, count, 0, 1, 0, in, plan->spread + ((ptrdiff_t)point * s->panels + p) * panel, 16,
                        panel, plan->products + point * wide, POINTS * wide, 0);
            }
            for (int l = 0; l < lines; l++) {
                close_cells(plan, s, slot, plan->products + l * 16, wide, p + l, cell, norm, count, first);
            }
        }
    }
    for (int p = 0; p < s->panels; p++) {
        const int32_t *again = plan->again + (ptrdiff_t)p * plan->job->batch * s->cells;
        for (int first = 0; first < plan->again_count[p]; first += TILES) {
            const int count = smaller(TILES, plan->again_count[p] - first);
            for (int i = 0; i < count; i++) cell[i] = batch_cell(s, slot, out, out_stride, again[first + i]);
            conv_cells(s, slot->panel, slot->bias, p, 1, cell, count);
        }
    }
}

#endif
