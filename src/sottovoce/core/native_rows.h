/* Defences: rows of a matrix compared and added, columns sorted (threats/defences). Updates are float32 rows, `dim` apart;
 * work is on the columns from `start` to `stop`. */

enum { ROW_LANES = 64, WIDTH = 2048, TILE = 16, PAD = 8 };

EXPORT void LEVEL_OF(pairs)(const float *restrict updates, int64_t dim, const int64_t *restrict rows, int64_t count,
                                 int64_t start, int64_t stop, double *restrict total, int64_t padded,
                                 double *restrict tile)
{
    /* A tile holds some columns as rows: a vector is then one column of many clients, and pairs need no sum across. */
    for (int64_t first = start; first < stop; first += TILE) {
        int64_t width = stop - first < TILE ? stop - first : TILE;
        if (width < TILE)
            memset(tile, 0, (size_t)(TILE * padded) * sizeof *tile);
        for (int64_t row = 0; row < count; row++)
            for (int64_t column = 0; column < width; column++)
                tile[column * padded + row] = updates[rows[row] * dim + first + column];
        for (int64_t column = 0; column < TILE; column += 8) {
            const double *a = tile + column * padded, *b = a + padded, *c = b + padded, *d = c + padded;
            const double *e = d + padded, *f = e + padded, *g = f + padded, *h = g + padded;
            for (int64_t row = 1; row < count; row++) {
                double *sums = total + row * padded;
                double ar = a[row], br = b[row], cr = c[row], dr = d[row];
                double er = e[row], fr = f[row], gr = g[row], hr = h[row];
                for (int64_t other = 0; other < (row + PAD - 1) / PAD * PAD; other++) {
                    double da = a[other] - ar, db = b[other] - br, dc = c[other] - cr, dd = d[other] - dr;
                    double de = e[other] - er, df = f[other] - fr, dg = g[other] - gr, dh = h[other] - hr;
                    sums[other] +=
                        ((da * da + db * db) + (dc * dc + dd * dd)) + ((de * de + df * df) + (dg * dg + dh * dh));
                }
            }
        }
    }
}

INLINE double added(const double *lanes)
{
    double total = 0;
    for (int lane = 0; lane < ROW_LANES; lane++)
        total += lanes[lane];
    return total;
}

EXPORT void LEVEL_OF(distances)(const float *restrict updates, int64_t dim, const int64_t *restrict rows,
                                     int64_t count, const double *restrict center, int64_t start, int64_t stop,
                                     double *restrict total)
{
    for (int64_t index = 0; index < count; index++) {
        const float *row = updates + rows[index] * dim;
        double sums[ROW_LANES] = {0};
        int64_t first = start;
        for (; first + ROW_LANES <= stop; first += ROW_LANES)
            for (int lane = 0; lane < ROW_LANES; lane++) {
                double difference = (double)row[first + lane] - center[first + lane];
                sums[lane] += difference * difference;
            }
        for (int64_t lane = 0; lane < stop - first; lane++) {
            double difference = (double)row[first + lane] - center[first + lane];
            sums[lane] += difference * difference;
        }
        total[index] = added(sums);
    }
}

EXPORT double LEVEL_OF(product)(const float *restrict row, const float *restrict other, int64_t start, int64_t stop)
{
    double sums[ROW_LANES] = {0};
    int64_t first = start;
    for (; first + ROW_LANES <= stop; first += ROW_LANES)
        for (int lane = 0; lane < ROW_LANES; lane++)
            sums[lane] += (double)row[first + lane] * (double)other[first + lane];
    for (int64_t lane = 0; lane < stop - first; lane++)
        sums[lane] += (double)row[first + lane] * (double)other[first + lane];
    return added(sums);
}

EXPORT void LEVEL_OF(weighted)(const float *restrict updates, int64_t dim, const int64_t *restrict rows,
                                    int64_t count, const double *restrict weights, int64_t start, int64_t stop,
                                    double *restrict result)
{
    for (int64_t first = start; first < stop; first += WIDTH) {
        int64_t width = stop - first < WIDTH ? stop - first : WIDTH;
        double *part = result + first;
        memset(part, 0, (size_t)width * sizeof *part);
        for (int64_t index = 0; index < count; index++) {
            const float *row = updates + rows[index] * dim + first;
            double weight = weights[index];
            for (int64_t column = 0; column < width; column++)
                part[column] += weight * (double)row[column];
        }
    }
}

/* Turn the bits of a float into an integer of the same order, and back: the sign turns the other bits over. */
INLINE int32_t key(int32_t bits) { return bits ^ (bits >> 31 & 0x7FFFFFFF); }

/* Fill the tile with the keys of some columns, and sort it; lanes after the last column hold what was there. */
INLINE void sort(const int32_t *restrict bits, int64_t dim, const int64_t *restrict rows, int64_t count,
                 const int32_t *restrict comparators, int64_t pairs, int32_t *restrict tile, int64_t lanes,
                 int64_t start, int64_t width)
{
    for (int64_t row = 0; row < count; row++)
        for (int64_t lane = 0; lane < width; lane++)
            tile[row * lanes + lane] = key(bits[rows[row] * dim + start + lane]);
    for (int64_t index = 0; index < pairs; index++) {
        int32_t *restrict lower = tile + comparators[2 * index] * lanes;
        int32_t *restrict upper = tile + comparators[2 * index + 1] * lanes;
        for (int64_t lane = 0; lane < lanes; lane++) {
            int32_t one = lower[lane], other = upper[lane];
            lower[lane] = one < other ? one : other;
            upper[lane] = one < other ? other : one;
        }
    }
}

INLINE void restore(int32_t *restrict tile, int64_t lanes, int64_t low, int64_t high)
{
    for (int64_t place = low * lanes; place < high * lanes; place++)
        tile[place] = key(tile[place]);
}

INLINE float value(int32_t bits)
{
    float found;
    memcpy(&found, &bits, sizeof found);
    return found;
}

EXPORT void LEVEL_OF(middle)(const int32_t *restrict bits, int64_t dim, const int64_t *restrict rows, int64_t count,
                                  const int32_t *restrict comparators, int64_t pairs, int64_t lanes, int64_t start,
                                  int64_t stop, int64_t low, int64_t high, float *restrict result,
                                  int32_t *restrict tile, double *restrict total)
{
    for (int64_t first = start; first < stop; first += lanes) {
        int64_t width = stop - first < lanes ? stop - first : lanes;
        sort(bits, dim, rows, count, comparators, pairs, tile, lanes, first, width);
        restore(tile, lanes, low, high);
        memset(total, 0, (size_t)lanes * sizeof *total);
        for (int64_t row = low; row < high; row++)
            for (int64_t lane = 0; lane < lanes; lane++)
                total[lane] += (double)value(tile[row * lanes + lane]);
        for (int64_t lane = 0; lane < width; lane++)
            result[first + lane] = (float)(total[lane] / (double)(high - low));
    }
}

EXPORT void LEVEL_OF(closest)(const int32_t *restrict bits, int64_t dim, const int64_t *restrict rows,
                                   int64_t count, const int32_t *restrict comparators, int64_t pairs, int64_t lanes,
                                   int64_t start, int64_t stop, int64_t kept, float *restrict result,
                                   int32_t *restrict tile, double *restrict room, int64_t *restrict begin)
{
    double *total = room, *median = room + lanes;
    for (int64_t first = start; first < stop; first += lanes) {
        int64_t width = stop - first < lanes ? stop - first : lanes;
        sort(bits, dim, rows, count, comparators, pairs, tile, lanes, first, width);
        restore(tile, lanes, 0, count);
        const int32_t *under = tile + (count - 1) / 2 * lanes, *over = tile + count / 2 * lanes;
        for (int64_t lane = 0; lane < lanes; lane++) {
            median[lane] = ((double)value(under[lane]) + (double)value(over[lane])) / 2;
            begin[lane] = 0;
            total[lane] = 0;
        }
        /* The window moves up while the value above it is closer than its lowest: once it is not, it never is again. */
        for (int64_t row = 0; row < count - kept; row++)
            for (int64_t lane = 0; lane < lanes; lane++) {
                double above = fabs((double)value(tile[(row + kept) * lanes + lane]) - median[lane]);
                double below = fabs((double)value(tile[row * lanes + lane]) - median[lane]);
                begin[lane] += above < below;
            }
        /* Only what is inside is ever added: a huge value that is added and taken away would leave its rounding. */
        for (int64_t row = 0; row < count; row++)
            for (int64_t lane = 0; lane < lanes; lane++) {
                int inside = begin[lane] <= row && row < begin[lane] + kept;
                total[lane] += inside ? (double)value(tile[row * lanes + lane]) : 0.0;
            }
        for (int64_t lane = 0; lane < width; lane++)
            result[first + lane] = (float)(total[lane] / (double)kept);
    }
}
