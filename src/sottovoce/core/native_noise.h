/* A client's message: its norm, its image on the grid, its noise, and the sum of such (privacy/noise, federation/sums). */

/* Four sums, always the same four: quick without the reordering that would make the result depend on the machine. */
EXPORT double LEVEL_OF(squares)(const loosefloat *restrict values, int64_t count)
{
    double a = 0, b = 0, c = 0, d = 0;
    int64_t whole = count - count % 4;
    for (int64_t index = 0; index < whole; index += 4) {
        a += (double)values[index] * (double)values[index];
        b += (double)values[index + 1] * (double)values[index + 1];
        c += (double)values[index + 2] * (double)values[index + 2];
        d += (double)values[index + 3] * (double)values[index + 3];
    }
    for (int64_t index = whole; index < count; index++)
        a += (double)values[index] * (double)values[index];
    return (a + b) + (c + d);
}

/* Write the integers nearest to message * scale; return the sum of their squares. */
EXPORT int64_t LEVEL_OF(round)(const loosefloat *restrict message, int64_t count, double scale,
                                    int32_t *restrict centres)
{
    int64_t squares = 0;
    for (int64_t index = 0; index < count; index++) {
        double nearest = rint((double)message[index] * scale);
        int32_t centre = (int32_t)nearest;
        centres[index] = centre;
        squares += (int64_t)centre * (int64_t)centre;
    }
    return squares;
}

/* Look the outcomes of random numbers up; return how many spare numbers are used, or -1 if there were too few. */
EXPORT int64_t LEVEL_OF(invert)(const uint64_t *restrict high, const uint64_t *restrict low,
                                const uint16_t *restrict guide, uint32_t row_mask, uint32_t row_bits, int64_t outcomes,
                                uint32_t guide_bits, int32_t first, const int32_t *restrict centres, int64_t count,
                                const uint64_t *restrict numbers, const uint64_t *restrict spare, int64_t spares,
                                int64_t used, uint32_t *restrict words, uint32_t mask)
{
    uint32_t shift = 64 - guide_bits;
    for (int64_t index = 0; index < count; index++) {
        uint64_t number = numbers[index], row = (uint32_t)centres[index] & row_mask;
        const uint64_t *thresholds = high + row * (uint64_t)outcomes;
        uint64_t outcome = guide[(row << guide_bits) + (number >> shift)];
        while (number >= thresholds[outcome]) {
            if (number == thresholds[outcome]) {
                /* The first 64 bits do not decide. Later thresholds may share them: read the next 64 bits once. */
                if (used >= spares)
                    return -1;
                uint64_t extra = spare[used++];
                while (outcome < (uint64_t)outcomes - 1 && thresholds[outcome] == number &&
                       extra >= low[row * (uint64_t)outcomes + outcome])
                    outcome++;
                break;
            }
            outcome++;
        }
        uint32_t base = (uint32_t)(centres[index] >> row_bits);
        words[index] = (base + (uint32_t)first + (uint32_t)outcome) & mask;
    }
    return used;
}

/* Write the words of some messages, a row each: clipped, rounded to a length within `limit`, and drawn around. A row of
 * `numbers` is what one client's stream gives, `spares` first. A message that is not finite counts as zero. Return how
 * many were not, or -1 if spare numbers ran out. As `protect_floats` in privacy/noise/path.py does one by one. */
EXPORT int64_t LEVEL_OF(protect)(const uint64_t *restrict high, const uint64_t *restrict low,
                                 const uint16_t *restrict guide, uint32_t row_mask, uint32_t row_bits, int64_t outcomes,
                                 uint32_t guide_bits, int32_t first, uint32_t mask, const float *restrict messages,
                                 int64_t rows, int64_t length, double unit, double clip_norm, double limit,
                                 const uint64_t *restrict numbers, int64_t spares, int32_t *restrict centres,
                                 uint32_t *restrict words)
{
    int64_t lost = 0;
    for (int64_t row = 0; row < rows; row++, messages += length, words += length, numbers += spares + length) {
        double norm = sqrt(LEVEL_OF(squares)(messages, length));
        double scale = norm <= clip_norm ? unit : unit * (clip_norm / norm);
        int attempts = norm <= 1.7976931348623157e308 ? 64 : 0;
        lost += attempts == 0;
        for (; attempts > 0; attempts--) {
            double squares = (double)LEVEL_OF(round)(messages, length, scale, centres);
            if (squares <= limit)
                break;
            /* Rounding lengthened it. Aim below the limit: what rounding adds hardly changes with the scale. */
            scale *= sqrt(limit / squares) * (1 - 1e-7);
        }
        if (attempts == 0)
            memset(centres, 0, (size_t)length * sizeof *centres);
        if (LEVEL_OF(invert)(high, low, guide, row_mask, row_bits, outcomes, guide_bits, first, centres, length,
                             numbers + spares, numbers, spares, 0, words, mask) < 0)
            return -1;
    }
    return lost;
}

/* The largest |value| as bits: these order like |value| and put NaN above everything; floats would not vectorise. */
EXPORT uint32_t LEVEL_OF(largest)(const loose32 *restrict bits, int64_t count)
{
    uint32_t top = 0;
    for (int64_t index = 0; index < count; index++) {
        uint32_t value = bits[index] & 0x7FFFFFFFu;
        top = value > top ? value : top;
    }
    return top;
}

EXPORT void LEVEL_OF(add_on_grid)(int64_t *restrict accumulator, const loosefloat *restrict values, int64_t count,
                                       double scale)
{
    for (int64_t index = 0; index < count; index++) {
        double nearest = rint((double)values[index] * scale); /* apart: GCC has no vectors for both at once */
        accumulator[index] += (int64_t)nearest;
    }
}

/* The records of each batch: a client's are shuffled as far as a batch goes, by uniform numbers in [0, 1), and then
 * shuffled on. A batch of all records has them in their order and takes no numbers (models/trainer.py). */
EXPORT void LEVEL_OF(draw_batches)(const double *restrict uniform, int64_t clients, const int64_t *restrict records,
                                        int64_t steps, const int64_t *restrict sizes, int64_t *restrict index,
                                        int64_t *restrict order)
{
    for (int64_t client = 0; client < clients; client++) {
        int64_t count = records[client], size = sizes[client];
        for (int64_t place = 0; place < count; place++)
            order[place] = place;
        for (int64_t step = 0; step < steps; step++, index += size) {
            for (int64_t place = 0; place < size && size < count; place++) {
                int64_t other = place + (int64_t)(*uniform++ * (double)(count - place)), kept = order[place];
                order[place] = order[other];
                order[other] = kept;
            }
            memcpy(index, order, (size_t)size * sizeof *index);
        }
    }
}
