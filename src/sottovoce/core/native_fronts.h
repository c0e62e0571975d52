/* Features of public fronts (models/fronts): scattering coefficients, projections, hashed n-grams. */

enum { IMAGES = 16 }; /* images side by side */

typedef struct {
    const float *rows, *columns;
    int64_t high, wide; /* the shape of what comes out, in places */
} Matrices;

/* out = |framed * (real + i imaginary)|; three taps at a time, so that sums are stored less often. */
INLINE void modulus(const float *restrict framed, int64_t stride, const float *restrict real,
                    const float *restrict imaginary, int64_t size, float *restrict out, int64_t height, int64_t length,
                    float *restrict cosine, float *restrict sine)
{
    for (int64_t row = 0; row < height; row++) {
        memset(cosine, 0, (size_t)length * sizeof *cosine);
        memset(sine, 0, (size_t)length * sizeof *sine);
        for (int64_t down = 0; down < size; down++)
            for (int64_t right = 0; right < size; right += 3) {
                const float *x0 = framed + (row + down) * stride + right * IMAGES, *x1 = x0 + IMAGES, *x2 = x1 + IMAGES;
                const float *r = real + down * size + right, *im = imaginary + down * size + right;
                float r0 = r[0], r1 = r[1], r2 = r[2], i0 = im[0], i1 = im[1], i2 = im[2];
                for (int64_t i = 0; i < length; i++) {
                    cosine[i] += r0 * x0[i] + r1 * x1[i] + r2 * x2[i];
                    sine[i] += i0 * x0[i] + i1 * x1[i] + i2 * x2[i];
                }
            }
        for (int64_t i = 0; i < length; i++)
            out[row * length + i] = sqrtf(cosine[i] * cosine[i] + sine[i] * sine[i]);
    }
}

/* out = rows * plane * columns^T */
INLINE void thin(const float *restrict plane, int64_t height, int64_t width, Matrices by, float *restrict out,
                 float *restrict line)
{
    for (int64_t place = 0; place < by.high; place++) {
        memset(line, 0, (size_t)(width * IMAGES) * sizeof *line);
        for (int64_t row = 0; row < height; row++) {
            float weight = by.rows[place * height + row];
            if (weight != 0)
                for (int64_t i = 0; i < width * IMAGES; i++)
                    line[i] += weight * plane[row * width * IMAGES + i];
        }
        for (int64_t column = 0; column < by.wide; column++) {
            float sums[IMAGES] = {0};
            for (int64_t other = 0; other < width; other++) {
                float weight = by.columns[column * width + other];
                if (weight != 0)
                    for (int i = 0; i < IMAGES; i++)
                        sums[i] += weight * line[other * IMAGES + i];
            }
            memcpy(out + (place * by.wide + column) * IMAGES, sums, sizeof sums);
        }
    }
}

/* A plane with its margins. */
INLINE void frame(const float *restrict plane, int64_t width, const int64_t *restrict rows, int64_t high,
                  const int64_t *restrict columns, int64_t wide, float *restrict out)
{
    for (int64_t row = 0; row < high; row++)
        for (int64_t column = 0; column < wide; column++)
            memcpy(out + (row * wide + column) * IMAGES, plane + (rows[row] * width + columns[column]) * IMAGES,
                   IMAGES * sizeof *out);
}

/* Orders 0, 1 and 2 of planes (blocks, height, width * IMAGES); shapes count places, not lanes. Return 0, or -1 when there
 * is no memory. */
EXPORT int32_t LEVEL_OF(scatter)(const float *restrict planes, int64_t blocks, int64_t height, int64_t width,
                                      const float *restrict real, const float *restrict imaginary, int64_t orientations,
                                      int64_t size, const float *half_rows, const float *half_columns, int64_t small,
                                      int64_t narrow, const float *place_rows, const float *place_columns,
                                      const float *late_rows, const float *late_columns, int64_t high, int64_t wide,
                                      const int64_t *margin_rows, const int64_t *margin_columns,
                                      const int64_t *late_margin_rows, const int64_t *late_margin_columns,
                                      float *restrict out)
{
    Matrices halves = {half_rows, half_columns, small, narrow}, places = {place_rows, place_columns, high, wide};
    Matrices late = {late_rows, late_columns, high, wide};
    int64_t edge = size - 1, tall = height + edge, broad = width + edge, low = small + edge, slim = narrow + edge;
    int64_t area = height * width, part = small * narrow, longest = (width > narrow ? width : narrow) * IMAGES;
    float *room = malloc((size_t)((tall * broad + low * slim + area + 2 * part) * IMAGES + 2 * longest) * sizeof *room);
    if (room == NULL)
        return -1;
    float *whole = room, *half = whole + tall * broad * IMAGES, *first = half + low * slim * IMAGES;
    float *second = first + area * IMAGES, *third = second + part * IMAGES, *line = third + part * IMAGES;
    float *other_line = line + longest;
    int64_t orders = 1 + 2 * orientations + orientations * orientations, cell = high * wide * IMAGES;
    for (int64_t block = 0; block < blocks; block++) {
        const float *plane = planes + block * area * IMAGES;
        float *found = out + block * orders * cell;
        thin(plane, height, width, places, found, line);
        thin(plane, height, width, halves, second, line);
        frame(second, narrow, late_margin_rows, low, late_margin_columns, slim, half);
        for (int64_t angle = 0; angle < orientations; angle++) {
            modulus(half, slim * IMAGES, real + angle * size * size, imaginary + angle * size * size, size, third, small,
                    narrow * IMAGES, line, other_line);
            thin(third, small, narrow, late, found + (1 + orientations + angle) * cell, line);
        }
        frame(plane, width, margin_rows, tall, margin_columns, broad, whole);
        for (int64_t angle = 0; angle < orientations; angle++) {
            modulus(whole, broad * IMAGES, real + angle * size * size, imaginary + angle * size * size, size, first,
                    height, width * IMAGES, line, other_line);
            thin(first, height, width, places, found + (1 + angle) * cell, line);
            thin(first, height, width, halves, second, line);
            frame(second, narrow, late_margin_rows, low, late_margin_columns, slim, half);
            for (int64_t other = 0; other < orientations; other++) {
                modulus(half, slim * IMAGES, real + other * size * size, imaginary + other * size * size, size, third,
                        small, narrow * IMAGES, line, other_line);
                thin(third, small, narrow, late, found + (1 + (2 + angle) * orientations + other) * cell, line);
            }
        }
    }
    free(room);
    return 0;
}

/* The products of each record; not by BLAS, whose rounding depends on the number of records. `room` holds `places`
 * values and `axes` times `across`. */
EXPORT void LEVEL_OF(project)(const float *restrict coefficients, int64_t records, int64_t channels, int64_t places,
                                   const float *restrict along, int64_t axes, const float *restrict turned,
                                   int64_t across, const int64_t *restrict pairs, int64_t features,
                                   float *restrict out, float *restrict room)
{
    float *line = room, *products = room + places;
    for (int64_t record = 0; record < records; record++, coefficients += channels * places, out += features) {
        for (int64_t axis = 0; axis < axes; axis++) {
            memset(line, 0, (size_t)places * sizeof *line);
            for (int64_t channel = 0; channel < channels; channel++) {
                float weight = along[axis * channels + channel];
                for (int64_t i = 0; i < places; i++)
                    line[i] += weight * coefficients[channel * places + i];
            }
            float *product = products + axis * across;
            memset(product, 0, (size_t)across * sizeof *product);
            for (int64_t place = 0; place < places; place++) {
                float weight = line[place];
                for (int64_t i = 0; i < across; i++)
                    product[i] += weight * turned[place * across + i];
            }
        }
        for (int64_t feature = 0; feature < features; feature++)
            out[feature] = products[pairs[2 * feature] * across + pairs[2 * feature + 1]];
    }
}

/* The finaliser of splitmix64 (Steele, Lea and Flood 2014). */
INLINE uint64_t mixed(uint64_t word)
{
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9u;
    word = (word ^ word >> 27) * 0x94D049BB133111EBu;
    return word ^ word >> 31;
}

EXPORT void LEVEL_OF(count)(const uint64_t *restrict tokens, int64_t rows, int64_t length, int64_t ngrams, uint64_t seed,
                            float *restrict counts, uint64_t boxes)
{
    uint64_t begin = mixed(seed + 0x9E3779B97F4A7C15u);
    for (int64_t row = 0; row < rows; row++, tokens += length, counts += boxes)
        for (int64_t start = 0; start < length; start++) {
            uint64_t word = begin;
            for (int64_t place = start; place < length && place < start + ngrams && tokens[place]; place++) {
                word = mixed(word + tokens[place] * 0x9E3779B97F4A7C15u);
                /* The lowest bit is the sign, the upper half chooses the box. */
                counts[(word >> 32) * boxes >> 32] += (float)(2 * (int)(word & 1) - 1); /* no branch: it is random */
            }
        }
}
