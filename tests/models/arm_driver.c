/* Replay calls of the compiled functions on another processor.
 *
 * Usage: driver FILE OUT. FILE holds int64 numbers and bytes, as test_arm.py writes them:
 *   buffers: count, then for each its size and its bytes
 *   places:  count, then for each a buffer, an offset in it, and the buffer whose address belongs there
 *   calls:   count, then for each a function, the kind of its result (1 integer or none, 2 double), the number of its
 *            integers, these as (1, buffer) or (0, value), the number of its floating values, and these as bits
 * OUT gets the result of each call, then all buffers. Integers and floating values travel in registers and stack slots
 * of their own, whatever their order (AAPCS64), so one type of function serves all. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arm_functions.h" /* FUNCTIONS: their addresses, in the order of their names */

#define ARGUMENTS                                                                                                      \
    a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14], a[15], a[16], a[17], \
        a[18], a[19], a[20], a[21], a[22], a[23], d[0], d[1], d[2], d[3]
#define SIX int64_t, int64_t, int64_t, int64_t, int64_t, int64_t
typedef int64_t (*Whole)(SIX, SIX, SIX, SIX, double, double, double, double);
typedef double (*Real)(SIX, SIX, SIX, SIX, double, double, double, double);

static FILE *in;

static int64_t number(void) {
    int64_t value;
    if (fread(&value, sizeof value, 1, in) != 1) exit(3);
    return value;
}

int main(int count, char **names) {
    if (count != 3 || !(in = fopen(names[1], "rb"))) return 2;
    FILE *out = fopen(names[2], "wb");
    int64_t buffers = number();
    char **buffer = calloc((size_t)buffers + 1, sizeof *buffer);
    int64_t *size = calloc((size_t)buffers + 1, sizeof *size);
    for (int64_t b = 0; b < buffers; b++) {
        size[b] = number();
        buffer[b] = aligned_alloc(64, (size_t)(size[b] + 127) / 64 * 64);
        if (size[b] && fread(buffer[b], (size_t)size[b], 1, in) != 1) return 3;
    }
    for (int64_t places = number(); places > 0; places--) {
        int64_t where = number(), offset = number(), of = number();
        memcpy(buffer[where] + offset, &buffer[of], sizeof(char *));
    }
    for (int64_t calls = number(); calls > 0; calls--) {
        int64_t function = number(), kind = number(), a[24] = {0}, result = 0;
        double d[4] = {0};
        int64_t integers = number();
        for (int64_t i = 0; i < integers; i++) {
            int64_t place = number(), value = number();
            a[i] = place ? (int64_t)(intptr_t)buffer[value] : value;
        }
        int64_t reals = number();
        for (int64_t i = 0; i < reals; i++) {
            int64_t bits = number();
            memcpy(&d[i], &bits, sizeof bits);
        }
        if (kind == 2) {
            double real = ((Real)FUNCTIONS[function])(ARGUMENTS);
            memcpy(&result, &real, sizeof result);
        } else {
            result = ((Whole)FUNCTIONS[function])(ARGUMENTS);
        }
        fwrite(&result, sizeof result, 1, out);
    }
    for (int64_t b = 0; b < buffers; b++) fwrite(buffer[b], 1, (size_t)size[b], out);
    return fclose(out) != 0;
}
