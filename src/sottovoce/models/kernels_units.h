/* Sum what many units of privacy answer to one step: each unit's update is clipped and rounded by itself.
 *
 * units.py says what is computed. A unit is a client that takes one step from the first weights, so it needs no weights
 * of its own: its slots point to the packed ones, and only what it would add to them is computed. One row of floats is
 * all that is ever written of updates; it is used up before the next unit's is made.
 *
 * All integers here are exact: a centre is below 2^26 steps, and the sum of its squares below 2^53, whatever the order
 * it is added in. */
#ifndef SOTTOVOCE_UNITS_H
#define SOTTOVOCE_UNITS_H

#include "kernels_train.h"

typedef double Four __attribute__((vector_size(32)));
typedef int64_t FourWhole __attribute__((vector_size(32)));
typedef int64_t LooseFourWhole __attribute__((vector_size(32), aligned(8), may_alias));
typedef float FourSmall __attribute__((vector_size(16)));
typedef float LooseFourSmall __attribute__((vector_size(16), aligned(4), may_alias));

/* Added to a number below 2^51, it leaves the nearest integer (half to even) in the low bits. */
#define NEAREST 6755399441055744.0

/* Macros, because without AVX four doubles cannot be returned. */
#define four_of(from) __builtin_convertvector((FourSmall)(*(const LooseFourSmall *)(from)), Four)
#define four(value) ((Four){value, value, value, value})

/* As `squares` in core/native_noise.h: four sums, always the same four. */
static double squares_of(const float *values, int64_t count) {
    Four sum = four(0);
    const int64_t whole = count - count % 4;
    for (int64_t i = 0; i < whole; i += 4) {
        const Four v = four_of(values + i);
        sum += v * v;
    }
    for (int64_t i = whole; i < count; i++) sum[0] += (double)values[i] * (double)values[i];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* The sum of the squares of the integers nearest to values * scale: exact, so its four chains may be added at will. */
static double rounded_squares(const float *values, int64_t count, double scale) {
    const Four factor = four(scale), nearest = four(NEAREST);
    Four sum[4] = {four(0), four(0), four(0), four(0)};
    int64_t i = 0;
    for (; i + 16 <= count; i += 16) {
        for (int k = 0; k < 4; k++) {
            const Four v = (four_of(values + i + 4 * k) * factor + nearest) - nearest;
            sum[k] += v * v;
        }
    }
    const Four lanes = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    double rest = 0;
    for (; i < count; i++) {
        const double v = ((double)values[i] * scale + NEAREST) - NEAREST;
        rest += v * v;
    }
    return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]) + rest;
}

static void add_rounded(const float *values, int64_t count, double scale, int64_t *total) {
    const Four factor = four(scale), nearest = four(NEAREST);
    const FourWhole base = (FourWhole)nearest;
    int64_t i = 0;
    for (; i + 4 <= count; i += 4) {
        const FourWhole centre = (FourWhole)(four_of(values + i) * factor + nearest) - base;
        *(LooseFourWhole *)(total + i) += centre;
    }
    for (; i < count; i++) total[i] += (int64_t)(((double)values[i] * scale + NEAREST) - NEAREST);
}

/* total += the centre of a message: clipped to `clip_norm`, which is `steps` steps, rounded to steps, and shortened until
 * its squares are within `limit`. A message that is not finite adds nothing. As `unit_centres` in privacy/noise/path. */
static void add_centre(const float *message, int64_t count, double clip_norm, double steps, double limit,
                            int64_t *total) {
    const double length = sqrt(squares_of(message, count));
    if (!(length <= 1.7976931348623157e308)) return;
    double scale = steps / (length > clip_norm ? length : clip_norm), further = 1e-6;
    for (int attempt = 0; attempt < 64; attempt++, further *= 2) {
        const double squares = rounded_squares(message, count, scale);
        if (squares <= limit) {
            add_rounded(message, count, scale, total);
            return;
        }
        scale *= sqrt(limit / squares) * (1 - (further < 0.5 ? further : 0.5));
    }
}

/* Write what one record adds to a dense layer: the same bits as write_outer, and no panels. */
static void write_single(const float *x, int rows, const float *g, int columns, float rate, float *to) {
    if (columns == 1) {
        for (int i = 0; i < rows; i++) to[i] = x[i] * g[0] * rate;
        return;
    }
    for (int i = 0; i < rows; i++, to += columns) {
        for (int o = 0; o < columns; o++) to[o] = x[i] * g[o] * rate;
    }
}

static void write_unit(Plan *plan, const Slot *slots, int batch, float *update) {
    const Job *job = plan->job;
    if (batch > 1) {
        write_update(plan, slots, batch, 0, update);
        return;
    }
    for (int l = 0; l < job->layers; l++) {
        const Shape *s = &plan->shape[l];
        memcpy(update + s->is.bias, slots[l].bias_sum, (size_t)s->is.out * sizeof(float));
        if (s->is.conv) {
            write_layer(plan, s, &slots[l], batch, 0, update + s->is.weight);
        } else {
            write_single(slots[l].x, s->is.in, slots[l].gradient, s->is.out, -job->lr, update + s->is.weight);
        }
    }
}

/* total += the centres of `units` units, job->chunk at a time, which changes nothing but the speed. `index` lists the
 * records of each unit in turn, `batch` how many each has, `share` the weight of one of them in the unit's loss, and
 * `weight` that of each class (NULL: 1). With `coordinates` only these values of an update are its message. */
EXPORT void LEVEL_OF(centres)(const Job *job, const void *packed, const void *x, const int64_t *y, int64_t units,
                                   const int64_t *index, const int32_t *batch, const float *share,
                                   const float *weight, const int64_t *coordinates, int64_t length, double clip_norm,
                                   double steps, double limit, void *workspace, float *update, float *message,
                                   int64_t *total) {
    Plan plan;
    Arena arena = {workspace, 0};
    plan_places(&plan, job, NULL, packed, &arena);
    fill_tables(&plan);
    plan.weight = weight;
    for (int k = 0; k < job->chunk; k++) {
        for (int l = 0; l < job->layers; l++) {
            /* The borders of images and the padding of rows are never written again. */
            const Slot *slot = &plan.slot[k * job->layers + l];
            const size_t rows = (size_t)job->batch * sizeof(float);
            memset(slot->x, 0, rows * (size_t)plan.shape[l].in_stride);
            if (slot->gradient) memset(slot->gradient, 0, rows * (size_t)plan.shape[l].out_padded);
        }
    }
    for (int64_t first = 0; first < units; first += job->chunk) {
        const int count = (int)(units - first < job->chunk ? units - first : job->chunk);
        play_step(&plan, count, &x, &y, 0, index, batch + first, share + first, 0);
        for (int k = 0; k < count; k++) {
            write_unit(&plan, plan.slot + k * job->layers, batch[first + k], update);
            for (int64_t i = 0; coordinates && i < length; i++) message[i] = update[coordinates[i]];
            add_centre(coordinates ? message : update, length, clip_norm, steps, limit, total);
            index += batch[first + k];
        }
    }
}

/* total += the centre of one message. */
EXPORT void LEVEL_OF(add_centre)(const float *message, int64_t count, double clip_norm, double steps, double limit,
                                      int64_t *total) {
    add_centre(message, count, clip_norm, steps, limit, total);
}

#if defined(TARGET) && defined(__clang__)
#pragma clang attribute pop
#endif

#endif
