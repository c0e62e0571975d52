/* One epoch of logistic regressions, one a class against the others (studies/mechanisms/sgd.py). True weights are
 * `weights` times `scales`; `losses` is zero at first. */
#define EPOCH(suffix, type, dot)                                                                                       \
    EXPORT void LEVEL_OF(epoch_##suffix)(const type *restrict x, const double *restrict targets,                       \
                                         const int64_t *restrict order, int64_t records, int64_t features,             \
                                         int64_t classes, type *restrict weights, type *restrict intercepts,           \
                                         double *restrict scales, const uint8_t *restrict left, double alpha,          \
                                         double delay, int64_t epoch, double *restrict losses)                         \
    {                                                                                                                  \
        for (int64_t place = 0; place < records; place++) {                                                            \
            const type *record = x + order[place] * features;                                                          \
            double eta = 1.0 / (alpha * (delay + (double)(epoch * records + place)));                                  \
            for (int64_t k = 0; k < classes; k++) {                                                                    \
                if (!left[k])                                                                                          \
                    continue;                                                                                          \
                type *row = weights + k * features;                                                                    \
                double target = targets[order[place] * classes + k];                                                   \
                double margin = target * ((double)dot(row, record, features) * scales[k] + (double)intercepts[k]);     \
                double slope = 1.0;                                                                                    \
                if (margin > 18) {                                                                                     \
                    slope = exp(-margin);                                                                              \
                    losses[k] += slope;                                                                                \
                } else if (margin < -18) {                                                                             \
                    losses[k] -= margin;                                                                               \
                } else {                                                                                               \
                    losses[k] += log(1.0 + exp(-margin));                                                              \
                    slope = 1.0 / (1.0 + exp(margin));                                                                 \
                }                                                                                                      \
                double step = eta * slope * target, shrunk = 1.0 - eta * alpha;                                        \
                scales[k] *= shrunk > 0 ? shrunk : 0.0;                                                                \
                if (scales[k] < 1e-9) {                                                                                \
                    for (int64_t j = 0; j < features; j++)                                                             \
                        row[j] = (type)((double)row[j] * scales[k]);                                                   \
                    scales[k] = 1.0;                                                                                   \
                }                                                                                                      \
                intercepts[k] = (type)((double)intercepts[k] + step);                                                  \
                if (fabs(step) < 1e-12 * scales[k]) /* far below the last digit of any weight that matters */          \
                    continue;                                                                                          \
                type size = (type)(step / scales[k]);                                                                  \
                for (int64_t j = 0; j < features; j++)                                                                 \
                    row[j] += size * record[j];                                                                        \
            }                                                                                                          \
        }                                                                                                              \
    }

EPOCH(float, float, dot_float)
EPOCH(double, double, dot_double)
