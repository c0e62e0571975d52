/* Learn only the weights that a mask keeps; in dense layers the batch lies in the lanes. */
#ifndef SOTTOVOCE_MASKED_H
#define SOTTOVOCE_MASKED_H

#include "kernels_dense.h"

static void transpose_batch(const float *from, int batch, ptrdiff_t stride, int columns, float *to) {
    const int lanes = up(batch, 8);
    for (int j = 0; j < columns; j++) {
        for (int r = 0; r < lanes; r++) to[(int64_t)j * lanes + r] = r < batch ? from[r * stride + j] : 0;
    }
}

/* z += x @ (what the kept weights have moved). */
static void kept_forward(const Shape *s, const Slot *slot, int batch, float *z) {
    const int lanes = up(batch, 8);
    for (int o = 0; o < s->is.out; o++) {
        if (s->by_out[o] == s->by_out[o + 1]) continue;
        for (int first = 0; first < batch; first += 8) {
            Vector sum = all(0);
            float line[8];
            for (int i = s->by_out[o]; i < s->by_out[o + 1]; i++) {
                const int e = s->order[i];
                sum = fused(all(slot->sum[e]),
                                      load(slot->transposed + (int64_t)s->kept_in[e] * lanes + first), sum);
            }
            store(line, sum);
            for (int r = first; r < smaller(batch, first + 8); r++) z[(int64_t)r * s->out_padded + o] += line[r - first];
        }
    }
}

/* d += g @ (what the kept weights have moved)^T. */
static void kept_backward(const Shape *s, const Slot *slot, int batch, const float *g, float *d) {
    const int lanes = up(batch, 8);
    for (int i = 0; i < s->is.in; i++) {
        if (s->by_in[i] == s->by_in[i + 1]) continue;
        for (int first = 0; first < batch; first += 8) {
            Vector sum = all(0);
            float line[8];
            for (int e = s->by_in[i]; e < s->by_in[i + 1]; e++) {
                sum = fused(all(slot->sum[e]),
                                      load(g + (int64_t)s->kept_out[e] * lanes + first), sum);
            }
            store(line, sum);
            for (int r = first; r < smaller(batch, first + 8); r++) d[r * s->in_stride + i] += line[r - first];
        }
    }
}

static void kept_step(const Shape *s, const Slot *slot, int batch, const float *g, float rate) {
    const int lanes = up(batch, 8);
    for (int64_t e = 0; e < s->is.kept; e++) {
        const float *x = slot->transposed + (int64_t)s->kept_in[e] * lanes, *y = g + (int64_t)s->kept_out[e] * lanes;
        Vector sum = times(load(x), load(y));
        for (int r = 8; r < lanes; r += 8) sum = fused(load(x + r), load(y + r), sum);
        slot->sum[e] += rate * total(sum);
    }
}

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

#endif
