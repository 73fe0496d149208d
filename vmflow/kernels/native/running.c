/* Running sums and products.  Sums begin with -0, which leaves every addend unchanged.
 *
 * An array is (outer, size, inner).  The functions run along the second dimension, backwards if `reverses`.  Rows lie
 * `apart` elements apart, so that each thread can take some of the columns.  `to` may be `from`.
 *
 * TYPE is replaced by the name of an element's type, and WIDE by that of the accumulator: double for float.
 */

#define ROWS_AT_ONCE 8
#define COLUMNS_AT_ONCE 256

/* Several rows together, each with a sum of its own: with one row, each addition would wait for the one before. */
static inline __attribute__((always_inline)) void run_rows_TYPE(const TYPE *from, TYPE *to, const int64_t rows, int64_t n,
                                                                 int64_t multiplies, int64_t reverses) {
    WIDE total[ROWS_AT_ONCE];
    for (int64_t row = 0; row < rows; row++) total[row] = multiplies ? 1 : (WIDE)-0.0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = reverses ? n - 1 - i : i;
        for (int64_t row = 0; row < rows; row++) {
            const WIDE value = from[row * n + at];
            total[row] = multiplies ? total[row] * value : total[row] + value;
            to[row * n + at] = (TYPE)total[row];
        }
    }
}

static inline __attribute__((always_inline)) void run_columns_TYPE(const TYPE *from, TYPE *to, int64_t size, int64_t inner,
                                                                    int64_t apart, int64_t multiplies, int64_t reverses) {
    WIDE total[COLUMNS_AT_ONCE];
    for (int64_t i = 0; i < inner; i++) total[i] = multiplies ? 1 : (WIDE)-0.0;
    for (int64_t row = 0; row < size; row++) {
        const int64_t at = (reverses ? size - 1 - row : row) * apart;
        LANES
        for (int64_t i = 0; i < inner; i++) {
            const WIDE value = from[at + i];
            total[i] = multiplies ? total[i] * value : total[i] + value;
            to[at + i] = (TYPE)total[i];
        }
    }
}

static inline __attribute__((always_inline)) void run_TYPE(const TYPE *from, TYPE *to, int64_t outer, int64_t size,
                                                            int64_t inner, int64_t apart, int64_t multiplies,
                                                            int64_t reverses) {
    if (apart == 1) {
        for (; outer >= ROWS_AT_ONCE; outer -= ROWS_AT_ONCE, from += ROWS_AT_ONCE * size, to += ROWS_AT_ONCE * size)
            run_rows_TYPE(from, to, ROWS_AT_ONCE, size, multiplies, reverses);
        for (; outer; outer--, from += size, to += size) run_rows_TYPE(from, to, 1, size, multiplies, reverses);
        return;
    }
    for (; outer; outer--, from += size * apart, to += size * apart)
        for (int64_t i = 0; i < inner; i += COLUMNS_AT_ONCE)
            run_columns_TYPE(from + i, to + i, size, inner - i < COLUMNS_AT_ONCE ? inner - i : COLUMNS_AT_ONCE, apart, multiplies, reverses);
}

void cumsum_TYPE(const TYPE *from, TYPE *to, int64_t outer, int64_t size, int64_t inner, int64_t apart, int64_t reverses) {
    EXPECT(IS_AT(from) && IS_AT(to));
    EXPECT(outer >= 0 && size > 0 && inner > 0 && inner <= apart);
    if (reverses) run_TYPE(from, to, outer, size, inner, apart, 0, 1);
    else run_TYPE(from, to, outer, size, inner, apart, 0, 0);
}

void cumprod_TYPE(const TYPE *from, TYPE *to, int64_t outer, int64_t size, int64_t inner, int64_t apart, int64_t reverses) {
    EXPECT(IS_AT(from) && IS_AT(to));
    EXPECT(outer >= 0 && size > 0 && inner > 0 && inner <= apart);
    if (reverses) run_TYPE(from, to, outer, size, inner, apart, 1, 1);
    else run_TYPE(from, to, outer, size, inner, apart, 1, 0);
}
