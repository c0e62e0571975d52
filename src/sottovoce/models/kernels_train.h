/* Train small networks by plain SGD, many clients a call, on one core.
 *
 * Read fast.py first: it says what is computed and owns all memory. Five ideas make this faster than dense algebra:
 *   - a convolution, its ReLU and its max-pool are one pass, and their gradient is kept as lists of the few entries
 *     that pooling and ReLU leave different from zero;
 *   - a big dense matrix is never updated inside a client: W_t = W_0 - lr * (sum of outer products), so products with
 *     W_0 are shared by all clients of a chunk;
 *   - a convolution by 5 x 5 that is pooled by 2 takes fewer products (kernels_winograd.h);
 *   - with a mask, only kept entries of a gradient are computed;
 *   - a first dense layer whose client has few records never sees a weight again: z = X W_0 - lr (X X^T) G, where G has a
 *     row for each record, the sum of its gradients so far, and the update is -lr X^T G.
 *
 * Every output is summed in an order that depends on the shape of its own client's work alone, never on its neighbours
 * in a tile or chunk. That is why tiles of different heights run the same instructions per element.
 *
 * Words: a *panel* is 16 columns of a matrix, stored (rows, 16) and padded with zeros. A *cell* is one output of a
 * pool; a *position* one output of a convolution, numbered cell by cell. *Back layout* of a convolution kernel is
 * (block, out, block values): for one output channel a block is a few vectors of a patch, so that gradients run over
 * contiguous memory and the blocks of all channels fit the first-level cache.
 */
#ifndef SOTTOVOCE_TRAIN_H
#define SOTTOVOCE_TRAIN_H

#include "kernels_conv.h"
#include "kernels_masked.h"
#include "kernels_memory.h"
#include "kernels_winograd.h"

EXPORT int64_t LEVEL_OF(packed_size)(const Job *job) {
    Arena arena = {NULL, 0};
    for (int l = 0; l < job->layers; l++) {
        Shape s = shape_of(&job->layer[l]);
        packed_places(&s, &arena);
    }
    return arena.used;
}

EXPORT void LEVEL_OF(pack)(const Job *job, const float *params, void *packed) {
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

EXPORT int64_t LEVEL_OF(workspace_size)(const Job *job, const uint8_t *trainable) {
    Plan plan;
    Arena arena = {NULL, 0};
    plan_places(&plan, job, trainable, NULL, &arena);
    return arena.used;
}

static void read_record(const Job *job, const Shape *s, const void *x, int64_t record, float *to) {
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

static void conv_stack(Plan *plan, Slot *slots, int step, int batch) {
    for (int l = 0; l < plan->first_dense; l++) {
        const Shape *s = &plan->shape[l];
        float *out = input_rows(plan, l + 1, &slots[l + 1], step, batch);
        if (s->winograd) {
            /* First weights stay as they are during a call; a client's own change with every step. */
            if (slots[l].panel != s->panel || plan->spread_of != s->panel) {
                spread_kernel(s, slots[l].panel, plan->spread, plan->close);
            }
            plan->spread_of = slots[l].panel;
            winograd_forward(plan, s, &slots[l], batch, out, plan->shape[l + 1].in_stride);
            continue;
        }
        for (int r = 0; r < batch; r++) {
            conv_forward(s, slots[l].panel, slots[l].bias, slots[l].x + r * s->in_stride,
                         out + r * plan->shape[l + 1].in_stride,
                         slots[l].where + (int64_t)r * s->cells * s->out_padded);
        }
    }
}

/* Read all records of a client, once, and multiply them with the first weights and with each other. */
static void start_by_record(Plan *plan, const void *x, int32_t records, Slot *slot) {
    const Shape *s = &plan->shape[0];
    for (int r = 0; r < records; r++) {
        read_record(plan->job, s, x, r, slot->x + r * s->in_stride);
        plan->row[r] = slot->x + r * s->in_stride;
    }
    multiply(plan->row, records, s->is.in, s->panel, s->panels, slot->first, s->out_padded);
    dots(slot->x, records, slot->x, records, s->in_stride, -plan->job->lr, slot->products);
}

/* z rows of a batch, from the products of its records. */
static void forward_by_record(Plan *plan, const Slot *slot, const int64_t *index, int count, int32_t records, int step,
                              float *z) {
    const Shape *s = &plan->shape[0];
    for (int r = 0; r < count; r++) {
        memcpy(z + (int64_t)r * s->out_padded, slot->first + index[r] * s->out_padded,
               (size_t)s->out_padded * sizeof(float));
        plan->row[r] = slot->products + index[r] * records;
    }
    if (step) {
        product(s->panels, plan->row, count, 0, 1, 0, records, slot->sum, s->out_padded, 16, z, s->out_padded, 1);
    }
}

/* z rows of every client of the chunk through one dense layer. */
static void dense_forward(Plan *plan, int l, int clients, int step, const int32_t *batch) {
    const Job *job = plan->job;
    const Shape *s = &plan->shape[l];
    int rows = 0;
    const int64_t *index = plan->index;
    for (int k = 0; s->is.mode == BY_RECORD && k < clients; k++) {
        forward_by_record(plan, &plan->slot[k * job->layers], index + (int64_t)step * batch[k], batch[k],
                          plan->records[k], step, plan->z + (int64_t)rows * s->out_padded);
        rows += batch[k];
        index += (int64_t)job->steps * batch[k];
    }
    for (int k = 0; s->is.mode != BY_RECORD && k < clients; k++) {
        const Slot *slot = &plan->slot[k * job->layers + l];
        const float *x = input_rows(plan, l, slot, step, batch[k]);
        for (int r = 0; r < batch[k]; r++) plan->row[rows + r] = x + r * s->in_stride;
        if (s->is.mode == DIRECT) {
            multiply(plan->row + rows, batch[k], s->is.in, slot->panel, s->panels,
                     plan->z + (int64_t)rows * s->out_padded, s->out_padded);
        }
        rows += batch[k];
    }
    if (s->is.mode == LOW_RANK || s->is.mode == SPARSE) {
        multiply(plan->row, rows, s->is.in, s->panel, s->panels, plan->z, s->out_padded);
    }

    float *z = plan->z;
    for (int k = 0; k < clients; z += (int64_t)batch[k++] * s->out_padded) {
        const Slot *slot = &plan->slot[k * job->layers + l];
        const int count = batch[k], past = step * count;
        if (s->is.mode == LOW_RANK && past) {
            const float *x = input_rows(plan, l, slot, step, count);
            dots(x, count, slot->x, past, s->in_stride, -job->lr, plan->dots);
            for (int r = 0; r < count; r++) plan->row[r] = plan->dots + (int64_t)r * past;
            product(s->panels, plan->row, count, 0, 1, 0, past, slot->gradient, s->out_padded, 16, z, s->out_padded, 1);
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
                const Vector v = plus(load(from + o), load(slot->bias + o));
                store(to + o, s->is.relu ? rectified(v) : v);
            }
        }
    }
}

/* Replace each row of scores by the gradient of its share of the mean loss. A label is a class number, the bits of a
 * float (SQUARED, ABSOLUTE, HUBER), or a bit for each answer (ANSWERS); task.py has the formulas. */
static void loss_gradient(const Job *job, const float *z, int classes, int64_t label, float share, float *g) {
    if (job->loss == LOGISTIC) {
        g[0] = (1 / (1 + expf(-z[0])) - (float)label) * share;
        return;
    }
    if (job->loss == ORDINAL || job->loss == ANSWERS) {
        for (int c = 0; c < classes; c++) {
            const int yes = job->loss == ORDINAL ? label > c : (int)(label >> c & 1);
            g[c] = (1 / (1 + expf(-z[c])) - (float)yes) / (float)classes * share;
        }
        return;
    }
    if (job->loss != SOFTMAX) {
        const uint32_t bits = (uint32_t)label;
        float value, error;
        memcpy(&value, &bits, sizeof value);
        error = z[0] - value;
        if (job->loss == ABSOLUTE) error = (float)((error > 0) - (error < 0));
        if (job->loss == HUBER) error = error > 1 ? 1 : error < -1 ? -1 : error;
        g[0] = error * share;
        return;
    }
    float best = z[0], sum = 0;
    for (int c = 1; c < classes; c++) best = z[c] > best ? z[c] : best;
    for (int c = 0; c < classes; c++) sum += g[c] = expf(z[c] - best);
    for (int c = 0; c < classes; c++) g[c] = (g[c] / sum - (float)(c == label)) * share;
}

/* d = g @ W_t^T for every client, then this layer's step. */
static void dense_backward(Plan *plan, int l, int clients, int step, const int32_t *batch) {
    const Job *job = plan->job;
    const Shape *s = &plan->shape[l];
    const int below = l > job->lowest, panels = (int)(s->in_stride / 16);
    int rows = 0;
    const int64_t *index = plan->index;
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
            product(panels, plan->row, count, 0, 1, 0, past, slot->x, s->in_stride, 16, d, s->in_stride, 1);
        }
        if (s->is.mode == SPARSE) {
            transpose_batch(g, count, s->out_padded, s->is.out, plan->packed);
            if (below && step) kept_backward(s, slot, count, plan->packed, d);
            kept_step(s, slot, count, plan->packed, -job->lr);
        }
        for (int r = 0; s->is.mode == BY_RECORD && r < count; r++) {
            float *sum = slot->sum + index[past + r] * s->out_padded;
            for (int o = 0; o < s->out_padded; o++) sum[o] += g[(int64_t)r * s->out_padded + o];
        }
        index += (int64_t)job->steps * count;
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

static void start_client(Plan *plan, Slot *slots, int batch, int32_t records) {
    for (int l = 0; l < plan->job->layers; l++) {
        const Shape *s = &plan->shape[l];
        Slot *slot = &slots[l];
        const size_t panel = (size_t)s->panels * s->taps * 16 * sizeof(float);
        const size_t back = (size_t)s->back_size * sizeof(float), bias = (size_t)s->out_padded * sizeof(float);
        const int64_t steps = s->is.mode == LOW_RANK && plan->job->training ? plan->job->steps : 1;
        /* The borders of images and the padding of rows are never written again. */
        const int by_record = s->is.mode == BY_RECORD && plan->job->training;
        memset(slot->x, 0, (size_t)((by_record ? records : steps * batch) * s->in_stride) * sizeof(float));
        if (!plan->job->training) continue;
        memcpy(slot->bias, s->bias, bias);
        memset(slot->bias_sum, 0, bias);
        if (!s->is.conv) memset(slot->gradient, 0, (size_t)(steps * batch * s->out_padded) * sizeof(float));
        if (s->is.mode == SPARSE) memset(slot->sum, 0, (size_t)s->is.kept * sizeof(float));
        if (s->is.mode == DIRECT) memset(slot->sum, 0, s->is.conv ? back : panel);
        if (by_record) memset(slot->sum, 0, (size_t)(records * s->out_padded) * sizeof(float));
        if (slot->sum_back) memset(slot->sum_back, 0, back);
        if (slot->panel) memcpy(slot->panel, s->panel, panel);
        if (slot->back) memcpy(slot->back, s->back, back);
    }
}

static void write_layer(Plan *plan, const Shape *s, const Slot *slot, int batch, int32_t records, float *to) {
    const Job *job = plan->job;
    if (s->is.mode == BY_RECORD) {
        write_outer(records, slot->x, s->in_stride, s->is.in, slot->sum, s->out_padded, s->is.out, -job->lr,
                    plan->packed, to);
    } else if (s->is.mode == LOW_RANK) {
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

static void write_update(Plan *plan, const Slot *slots, int batch, int32_t records, float *update) {
    for (int l = 0; l < plan->job->layers; l++) {
        const Shape *s = &plan->shape[l];
        memcpy(update + s->is.bias, slots[l].bias_sum, (size_t)s->is.out * sizeof(float));
        write_layer(plan, s, &slots[l], batch, records, update + s->is.weight);
    }
}

/* Take one step of every client; client k's records are at x[k * apart] and y[k * apart]. */
static void play_step(Plan *plan, int clients, const void *const *x, const int64_t *const *y, int apart,
                           const int64_t *index, const int32_t *batch, const float *share, int step) {
    const Job *job = plan->job;
    const int last = job->layers - 1;
    const int64_t *records = index;
    plan->index = index;
    for (int k = 0; job->layer[0].mode != BY_RECORD && k < clients; k++) {
        const int size = batch[k];
        Slot *slots = plan->slot + k * job->layers;
        float *to = input_rows(plan, 0, slots, step, size);
        for (int r = 0; r < size; r++) {
            read_record(job, &plan->shape[0], x[k * apart], records[(int64_t)step * size + r],
                        to + r * plan->shape[0].in_stride);
        }
        conv_stack(plan, slots, step, size);
        records += (int64_t)job->steps * size;
    }
    for (int l = plan->first_dense; l < job->layers; l++) dense_forward(plan, l, clients, step, batch);
    records = index;
    const float *z = plan->z;
    for (int k = 0; k < clients; k++) {
        const int size = batch[k], stride = plan->shape[last].out_padded;
        float *g = gradient_rows(plan, last, &plan->slot[k * job->layers + last], step, size);
        for (int r = 0; r < size; r++, z += stride, g += stride) {
            const int64_t label = y[k * apart][records[(int64_t)step * size + r]];
            loss_gradient(job, z, job->layer[last].out, label, share[k] * (plan->weight ? plan->weight[label] : 1), g);
        }
        records += (int64_t)job->steps * size;
    }
    for (int l = last; l >= plan->first_dense && l >= job->lowest; l--) dense_backward(plan, l, clients, step, batch);
    const float *d = plan->d;
    for (int k = 0; k < clients; k++) {
        const int64_t wide = plan->shape[plan->first_dense].in_stride;
        float *gradient = (float *)d;
        int64_t stride = wide;
        for (int l = plan->first_dense - 1; l >= job->lowest; l--) {
            conv_backward(plan, l, &plan->slot[k * job->layers + l], batch[k], &gradient, &stride, -job->lr);
        }
        d += batch[k] * wide;
    }
}

/* Train a chunk of clients, and leave what they learnt in the workspace. `index` lists the records of each batch, client
 * by client and step by step; `share` is the weight of one record in its client's loss. */
EXPORT void LEVEL_OF(train)(const Job *job, const void *packed, const uint8_t *trainable, const void *const *x,
                                 const int64_t *const *y, const int64_t *index, const int32_t *batch,
                                 const int32_t *records, const float *share, void *workspace) {
    Plan plan;
    Arena arena = {workspace, 0};
    plan_places(&plan, job, trainable, packed, &arena);
    fill_tables(&plan);
    plan.records = records;
    for (int k = 0; k < job->chunk; k++) {
        start_client(&plan, plan.slot + k * job->layers, batch[k], records[k]);
        if (job->layer[0].mode == BY_RECORD) start_by_record(&plan, x[k], records[k], plan.slot + k * job->layers);
    }
    for (int step = 0; step < job->steps; step++) play_step(&plan, job->chunk, x, y, 1, index, batch, share, step);
}

/* Write the updates of some clients of the chunk that was trained in this workspace, one after the other. */
EXPORT void LEVEL_OF(updates)(const Job *job, const void *packed, const uint8_t *trainable, int32_t first,
                                   int32_t count, int64_t dim, const int32_t *batch, const int32_t *records,
                                   void *workspace, float *updates) {
    Plan plan;
    Arena arena = {workspace, 0};
    plan_places(&plan, job, trainable, packed, &arena);
    for (int k = first; k < first + count; k++, updates += dim) {
        write_update(&plan, plan.slot + k * job->layers, batch[k], records[k], updates);
    }
}

/* Write the logits of `records` records, job->batch at a time. */
EXPORT void LEVEL_OF(scores)(const Job *job, const void *packed, int64_t records, const void *x, void *workspace,
                                  float *scores) {
    Plan plan;
    Arena arena = {workspace, 0};
    plan_places(&plan, job, NULL, packed, &arena);
    fill_tables(&plan);
    const Shape *last = &plan.shape[job->layers - 1];
    plan.index = NULL;
    start_client(&plan, plan.slot, job->batch, 0);
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

#endif
