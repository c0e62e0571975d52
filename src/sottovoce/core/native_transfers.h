/* Oblivious transfer: a matrix of 128 columns of bits turned into rows, and a hash of its columns (secagg/ot/extension.py). */

/* Swap ever smaller squares across the diagonal of 64 x 64 bits (Warren, Hacker's Delight, 7-3). */
INLINE void transpose_block(uint64_t *restrict block)
{
    uint64_t mask = 0x00000000FFFFFFFFu;
    for (int size = 32; size; size >>= 1, mask ^= mask << size)
        for (int place = 0; place < 64; place = (place + size + 1) & ~size) {
            uint64_t moved = ((block[place] >> size) ^ block[place + size]) & mask;
            block[place] ^= moved << size;
            block[place + size] ^= moved;
        }
}

/* Bit i of row j is bit j of column i; a column has `words` words, a row has two. */
EXPORT void LEVEL_OF(transpose)(const uint64_t *restrict columns, int64_t words, uint64_t *restrict rows)
{
    uint64_t block[64];
    for (int64_t word = 0; word < words; word++)
        for (int half = 0; half < 2; half++) {
            for (int index = 0; index < 64; index++)
                block[index] = columns[(64 * half + index) * words + word];
            transpose_block(block);
            for (int index = 0; index < 64; index++)
                rows[2 * (64 * word + index) + half] = block[index];
        }
}

/* Horner's rule over GF(2^128): `table` has the product of the point with each byte at each of 16 places. */
EXPORT void LEVEL_OF(hash_columns)(const uint64_t *restrict columns, int64_t count, int64_t words,
                                   const uint64_t *restrict table, uint64_t *restrict hashes)
{
    for (int64_t column = 0; column < count; column++) {
        const uint64_t *bits = columns + column * words;
        uint64_t low = 0, high = 0;
        for (int64_t block = words / 2 - 1; block >= 0; block--) {
            uint64_t next_low = bits[2 * block], next_high = bits[2 * block + 1];
            for (int place = 0; place < 8; place++) {
                const uint64_t *lower = table + 2 * (256 * place + (low >> 8 * place & 255));
                const uint64_t *upper = table + 2 * (256 * (place + 8) + (high >> 8 * place & 255));
                next_low ^= lower[0] ^ upper[0];
                next_high ^= lower[1] ^ upper[1];
            }
            low = next_low;
            high = next_high;
        }
        hashes[2 * column] = low;
        hashes[2 * column + 1] = high;
    }
}
