/* Adds a row to each row of a matrix; sums each column of a matrix. */

/* Rows lie `apart` elements from each other. */
static void add_to_each(float *to, int64_t rows, int64_t columns, int64_t apart, const float *row) {
    for (; rows; rows--, to += apart) {
        LANES
        for (int64_t i = 0; i < columns; i++) to[i] += row[i];
    }
}

/* The number of columns that are summed together, and of rows that are summed before their sum is added to the total: longer
 * sums lose digits. */
enum { ABREAST = 512, STACKED = 256 };

/* Add the sum of each of n columns, eight rows at a time. */
static void add_columns(const float *from, float *to, int64_t n, int64_t rows, int64_t apart) {
    for (; rows >= 8; rows -= 8, from += 8 * apart) {
        const float *a = from, *b = a + apart, *c = b + apart, *d = c + apart;
        const float *e = d + apart, *f = e + apart, *g = f + apart, *h = g + apart;
        LANES
        for (int64_t i = 0; i < n; i++) to[i] += ((a[i] + b[i]) + (c[i] + d[i])) + ((e[i] + f[i]) + (g[i] + h[i]));
    }
    for (; rows; rows--, from += apart) {
        LANES
        for (int64_t i = 0; i < n; i++) to[i] += from[i];
    }
}

/* The sum of each of n columns, whose rows lie `apart` elements from each other. */
static void sum_columns(const float *from, float *to, int64_t n, int64_t rows, int64_t apart) {
    float sums[ABREAST];
    for (int64_t left = 0; left < n; left += ABREAST) {
        const int64_t some = n - left < ABREAST ? n - left : ABREAST;
        memset(to + left, 0, (size_t)some * sizeof(float));
        for (int64_t row = 0; row < rows; row += STACKED) {
            memset(sums, 0, (size_t)some * sizeof(float));
            add_columns(from + row * apart + left, sums, some, rows - row < STACKED ? rows - row : STACKED, apart);
            LANES
            for (int64_t i = 0; i < some; i++) to[left + i] += sums[i];
        }
    }
}
