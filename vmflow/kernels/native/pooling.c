/* Max pooling of float32 images: the largest elements of windows, their indices, and the scattering of gradients to them. */

struct pooling {
    int64_t planes, height, width, rows, columns, kernel_rows, kernel_columns;
    int64_t row_stride, column_stride, above, left, row_dilation, column_dilation;
};

/* Whether windows of this length and stride begin within a line that is padded at both ends. */
#define BEGIN_WITHIN(count, stride, length, dilation, size, before)                                                              \
    ((count) > 0 && (stride) > 0 && (length) > 0 && (dilation) > 0 && (size) > 0 && (before) >= 0 &&                           \
     ((count)-1) * (stride) - (before) < (size))

/* Compare one element of each window of a row with the best so far; a nan replaces any number, and the last nan counts. */
static inline __attribute__((always_inline)) void compare(const int64_t stride, int64_t count, const float *from,
                                                          int32_t index, float *best, int32_t *where) {
    LANES
    for (int64_t i = 0; i < count; i++) {
        const float value = from[i * stride];
        const int32_t better = (value > best[i]) | (value != value);
        best[i] = better ? value : best[i];
        where[i] = better ? index + (int32_t)(i * stride) : where[i];
    }
}

static void compare_row(int64_t stride, int64_t count, const float *from, int32_t index, float *best, int32_t *where) {
    if (stride == 1)
        compare(1, count, from, index, best, where);
    else if (stride == 2)
        compare(2, count, from, index, best, where);
    else
        compare(stride, count, from, index, best, where);
}

/* The windows for which a tap lies within `size` elements: from `*first` up to, without, the returned number. */
static int64_t windows_with(int64_t tap, int64_t dilation, int64_t padding, int64_t stride, int64_t windows,
                            int64_t size, int64_t *first) {
    int64_t shift = tap * dilation - padding, end = size - shift > 0 ? (size - 1 - shift) / stride + 1 : 0;
    *first = shift < 0 ? (-shift + stride - 1) / stride : 0;
    return end < windows ? end : windows;
}

/* The first tap within the image, for windows that begin at `start`. */
static int64_t first_tap(int64_t start, int64_t dilation) {
    return start < 0 ? (-start + dilation - 1) / dilation : 0;
}

/* The largest of two by two elements; returns its distance from the first of them. */
static inline __attribute__((always_inline)) int32_t largest_of_four(const float *from, int64_t width, float *to) {
    const float values[4] = {from[0], from[1], from[width], from[width + 1]};
    const int32_t steps[4] = {0, 1, (int32_t)width, (int32_t)width + 1};
    float best = values[0];
    int32_t place = 0;
    for (int tap = 1; tap < 4; tap++) {
        const int32_t better = (values[tap] > best) | (values[tap] != values[tap]);
        best = better ? values[tap] : best;
        place = better ? steps[tap] : place;
    }
    *to = best;
    return place;
}

/* A row of adjacent windows of two by two elements, the most frequent kind. */
static void largest_of_fours(const float *from, int64_t width, int64_t index, int64_t count, float *to,
                             int64_t *indices) {
    int32_t places[64];
    for (int64_t begin = 0; begin < count; begin += 64, from += 128, to += 64) {
        const int64_t some = count - begin < 64 ? count - begin : 64;
        LANES
        for (int64_t i = 0; i < some; i++) places[i] = largest_of_four(from + 2 * i, width, to + i);
        if (!indices) continue;
        for (int64_t i = 0; i < some; i++) indices[begin + i] = index + 2 * (begin + i) + places[i];
    }
}

/* The adjacent windows of two by two elements of images that are so small that several fill a vector. */
static void largest_of_small_images(const struct pooling *op, const float *from, float *to, int64_t *indices) {
    int32_t starts[64], inside[64], places[64];
    const int64_t windows = op->rows * op->columns, size = op->height * op->width, together = 64 / windows;
    for (int64_t i = 0; i < together * windows; i++) {
        const int64_t window = i % windows;
        inside[i] = (int32_t)(window / op->columns * 2 * op->width + window % op->columns * 2);
        starts[i] = (int32_t)(i / windows * size) + inside[i];
    }
    for (int64_t plane = 0; plane < op->planes; plane += together, from += together * size) {
        const int64_t count = (op->planes - plane < together ? op->planes - plane : together) * windows;
        LANES
        for (int64_t i = 0; i < count; i++) places[i] = largest_of_four(from + starts[i], op->width, to + i);
        to += count;
        if (!indices) continue;
        for (int64_t i = 0; i < count; i++) indices[i] = inside[i] + places[i];
        indices += count;
    }
}

/* A row of windows that begins at the line `top`.  For each column of the kernel, `spans` holds the first window that has it
 * within the image, and the one behind the last. */
static void largest_of_row(const struct pooling *op, const float *from, int64_t top, const int64_t *spans, float *to,
                           int32_t *where) {
    const int64_t line = (top + first_tap(top, op->row_dilation) * op->row_dilation) * op->width;
    for (int64_t i = 0; i < op->columns; i++) {
        int64_t start = i * op->column_stride - op->left;
        where[i] = (int32_t)(line + start + first_tap(start, op->column_dilation) * op->column_dilation);
        to[i] = -INF;
    }
    for (int64_t down = 0; down < op->kernel_rows; down++) {
        const int64_t y = top + down * op->row_dilation;
        if (y < 0 || y >= op->height) continue;
        for (int64_t across = 0; across < op->kernel_columns; across++) {
            const int64_t first = spans[2 * across], count = spans[2 * across + 1] - first;
            int64_t index = y * op->width + first * op->column_stride + across * op->column_dilation - op->left;
            compare_row(op->column_stride, count, from + index, (int32_t)index, to + first, where + first);
        }
    }
}

/* `scratch` holds two numbers for each column of the kernel, and one for each column of the result; `indices` may be null. */
void max_pool(const struct pooling *op, const float *from, float *to, int64_t *indices, int64_t *scratch) {
    EXPECT(IS_AT(from) && IS_AT(to) && IS_AT_OR_NULL(indices) && IS_AT(scratch));
    EXPECT(op->planes >= 0);
    EXPECT(BEGIN_WITHIN(op->rows, op->row_stride, op->kernel_rows, op->row_dilation, op->height, op->above));
    EXPECT(BEGIN_WITHIN(op->columns, op->column_stride, op->kernel_columns, op->column_dilation, op->width, op->left));
    const int four = op->kernel_rows == 2 && op->kernel_columns == 2 && op->row_stride == 2 && op->column_stride == 2 &&
                     op->row_dilation == 1 && op->column_dilation == 1 && !op->above && !op->left &&
                     2 * op->rows <= op->height && 2 * op->columns <= op->width;
    int32_t *where = (int32_t *)(scratch + 2 * op->kernel_columns);
    if (four && op->columns < 4 && op->rows * op->columns <= 32) {
        largest_of_small_images(op, from, to, indices);
        return;
    }
    for (int64_t across = 0; across < op->kernel_columns; across++)
        scratch[2 * across + 1] = windows_with(across, op->column_dilation, op->left, op->column_stride, op->columns,
                                            op->width, scratch + 2 * across);
    for (int64_t plane = 0; plane < op->planes; plane++, from += op->height * op->width)
        for (int64_t row = 0; row < op->rows; row++, to += op->columns) {
            const int64_t top = row * op->row_stride - op->above;
            if (four)
                largest_of_fours(from + top * op->width, op->width, top * op->width, op->columns, to, indices);
            else
                largest_of_row(op, from, top, scratch, to, where);
            if (!indices) continue;
            for (int64_t i = 0; !four && i < op->columns; i++) indices[i] = where[i];
            indices += op->columns;
        }
}

/* Add values, one after the other, at their indices in planes of zeros; returns the number of indices that are out of range. */
int64_t plane_scatter(const float *values, const int64_t *indices, float *to, int64_t planes, int64_t count,
                      int64_t plane) {
    EXPECT(planes >= 0 && count >= 0 && plane >= 0);
    EXPECT(planes * count == 0 || (IS_AT(values) && IS_AT(indices) && IS_AT(to)));
    int64_t wrong = 0;
    memset(to, 0, (size_t)(planes * plane) * sizeof(float));
    for (int64_t number = 0; number < planes; number++, values += count, indices += count, to += plane)
        for (int64_t i = 0; i < count; i++) {
            int64_t outside = (uint64_t)indices[i] >= (uint64_t)plane;
            wrong += outside;
            if (!outside) to[indices[i]] += values[i];
        }
    return wrong;
}
