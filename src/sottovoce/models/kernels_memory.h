/* Lay out the memory of a call: one arena, measured first and then used. */
#ifndef SOTTOVOCE_MEMORY_H
#define SOTTOVOCE_MEMORY_H

#include "kernels_masked.h"

static void slot_places(const Plan *plan, const Shape *s, Slot *slot, Arena *arena) {
    const Job *job = plan->job;
    const int64_t batch = job->batch, panel = (int64_t)s->panels * s->taps * 16;
    const int64_t steps = s->is.mode == LOW_RANK && job->training ? job->steps : 1;
    const int64_t records = s->is.mode == BY_RECORD ? s->is.records : 0;
    slot->x = floats(arena, (records ? records : steps * batch) * s->in_stride);
    if (s->is.conv) slot->where = take(arena, batch * s->cells * s->out_padded);
    if (!job->training) {
        slot->panel = (float *)s->panel;
        slot->bias = (float *)s->bias;
        return;
    }
    slot->bias = job->training == UNITS ? (float *)s->bias : floats(arena, s->out_padded);
    slot->bias_sum = floats(arena, s->out_padded);
    if (!s->is.conv) slot->gradient = floats(arena, steps * batch * s->out_padded);
    if (s->is.mode == SPARSE) slot->sum = floats(arena, s->is.kept);
    if (s->is.mode == SPARSE && !s->is.conv) slot->transposed = floats(arena, (int64_t)s->is.in * up(job->batch, 8));
    if (s->is.mode == DIRECT) slot->sum = floats(arena, s->is.conv ? s->back_size : panel);
    if (records) {
        slot->sum = floats(arena, records * s->out_padded);
        slot->first = floats(arena, records * s->out_padded);
        slot->products = floats(arena, records * records);
    }
    if (job->training == UNITS) {
        slot->panel = (float *)s->panel;
        slot->back = (float *)s->back;
    } else if (s->is.conv || s->is.mode == DIRECT) {
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
    int64_t out = 0, in = 0, back = 0, channels = 0, positions = 0, lists = 0, dense_in = 0, spread = 0, tiles = 0, again = 0;
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
            if (s->winograd) {
                GROW(spread, 36 * (int64_t)s->panels * s->is.in * 16);
                GROW(tiles, s->is.in);
                GROW(again, (int64_t)s->panels * s->cells);
            }
        } else {
            GROW(dense_in, s->in_stride);
        }
    }
#undef GROW
    const int64_t batch = job->batch, rows = job->chunk * batch;
    plan->slot = take(arena, (int64_t)job->chunk * job->layers * (int64_t)sizeof(Slot));
    const int64_t records = job->training && job->layer[0].mode == BY_RECORD ? job->layer[0].records : 0;
    plan->row = take(arena, (rows > records ? rows : records) * (int64_t)sizeof(float *));
    plan->z = floats(arena, rows * out);
    if (spread) {
        plan->spread = floats(arena, spread);
        plan->close = floats(arena, out);
        plan->again = take(arena, again * batch * 4);
        plan->again_count = take(arena, out / 16 * 4);
        plan->tiles = floats(arena, 36 * TILES * tiles);
        plan->products = floats(arena, 36 * TILES * 16 * LINES);
    }
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
    plan->sums = floats(arena, out);
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

#endif
