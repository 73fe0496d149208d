/* The largest elements of windows of images of float32, where they are, and what goes back there. */

struct pooling {
    int64_t planes, height, width, rows, columns, kernel_rows, kernel_columns;
    int64_t row_stride, column_stride, above, left, row_dilation, column_dilation;
};

/* Whether windows of this length and stride lie in a line that is padded at both ends. */
#define BEGIN_WITHIN(count, stride, length, dilation, size, before)                                                              \
    ((count) > 0 && (stride) > 0 && (length) > 0 && (dilation) > 0 && (size) > 0 && (before) >= 0 &&                           \
     ((count)-1) * (stride) - (before) < (size))

/* One element of each window of a row of them, the last of which that is not a number counts. */
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

/* Which windows have a tap within `size` elements: those from `*first` on, before what is returned. */
static int64_t windows_with(int64_t tap, int64_t dilation, int64_t padding, int64_t stride, int64_t windows,
                            int64_t size, int64_t *first) {
    int64_t shift = tap * dilation - padding, end = size - shift > 0 ? (size - 1 - shift) / stride + 1 : 0;
    *first = shift < 0 ? (-shift + stride - 1) / stride : 0;
    return end < windows ? end : windows;
}

/* The first tap within the image, of windows that begin at `start`. */
static int64_t first_tap(int64_t start, int64_t dilation) {
    return start < 0 ? (-start + dilation - 1) / dilation : 0;
}

/* The largest of two by two elements; returns how far it is from the first of them. */
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

/* A row of windows of two by two elements side by side, which is what most are. */
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

/* The same of images that are so small that several fill a vector. */
static void largest_of_small_images(const struct pooling *it, const float *from, float *to, int64_t *indices) {
    int32_t starts[64], inside[64], places[64];
    const int64_t windows = it->rows * it->columns, size = it->height * it->width, together = 64 / windows;
    for (int64_t i = 0; i < together * windows; i++) {
        const int64_t window = i % windows;
        inside[i] = (int32_t)(window / it->columns * 2 * it->width + window % it->columns * 2);
        starts[i] = (int32_t)(i / windows * size) + inside[i];
    }
    for (int64_t plane = 0; plane < it->planes; plane += together, from += together * size) {
        const int64_t count = (it->planes - plane < together ? it->planes - plane : together) * windows;
        LANES
        for (int64_t i = 0; i < count; i++) places[i] = largest_of_four(from + starts[i], it->width, to + i);
        to += count;
        if (!indices) continue;
        for (int64_t i = 0; i < count; i++) indices[i] = inside[i] + places[i];
        indices += count;
    }
}

/* A row of windows that begins at the line `top`.  `spans` has of each column of the kernel the first window that has
 * it within the image, and the one behind the last. */
static void largest_of_row(const struct pooling *it, const float *from, int64_t top, const int64_t *spans, float *to,
                           int32_t *where) {
    const int64_t line = (top + first_tap(top, it->row_dilation) * it->row_dilation) * it->width;
    for (int64_t i = 0; i < it->columns; i++) {
        int64_t start = i * it->column_stride - it->left;
        where[i] = (int32_t)(line + start + first_tap(start, it->column_dilation) * it->column_dilation);
        to[i] = -INF;
    }
    for (int64_t down = 0; down < it->kernel_rows; down++) {
        const int64_t y = top + down * it->row_dilation;
        if (y < 0 || y >= it->height) continue;
        for (int64_t across = 0; across < it->kernel_columns; across++) {
            const int64_t first = spans[2 * across], count = spans[2 * across + 1] - first;
            int64_t index = y * it->width + first * it->column_stride + across * it->column_dilation - it->left;
            compare_row(it->column_stride, count, from + index, (int32_t)index, to + first, where + first);
        }
    }
}

/* `room` is for two numbers for each column of the kernel, and for one for each of the result; `indices` may be
 * null. */
void max_pool(const struct pooling *it, const float *from, float *to, int64_t *indices, int64_t *room) {
    EXPECT(IS_AT(from) && IS_AT(to) && IS_AT_OR_NULL(indices) && IS_AT(room));
    EXPECT(it->planes >= 0);
    EXPECT(BEGIN_WITHIN(it->rows, it->row_stride, it->kernel_rows, it->row_dilation, it->height, it->above));
    EXPECT(BEGIN_WITHIN(it->columns, it->column_stride, it->kernel_columns, it->column_dilation, it->width, it->left));
    const int four = it->kernel_rows == 2 && it->kernel_columns == 2 && it->row_stride == 2 && it->column_stride == 2 &&
                     it->row_dilation == 1 && it->column_dilation == 1 && !it->above && !it->left &&
                     2 * it->rows <= it->height && 2 * it->columns <= it->width;
    int32_t *where = (int32_t *)(room + 2 * it->kernel_columns);
    if (four && it->columns < 4 && it->rows * it->columns <= 32) {
        largest_of_small_images(it, from, to, indices);
        return;
    }
    for (int64_t across = 0; across < it->kernel_columns; across++)
        room[2 * across + 1] = windows_with(across, it->column_dilation, it->left, it->column_stride, it->columns,
                                            it->width, room + 2 * across);
    for (int64_t plane = 0; plane < it->planes; plane++, from += it->height * it->width)
        for (int64_t row = 0; row < it->rows; row++, to += it->columns) {
            const int64_t top = row * it->row_stride - it->above;
            if (four)
                largest_of_fours(from + top * it->width, it->width, top * it->width, it->columns, to, indices);
            else
                largest_of_row(it, from, top, room, to, where);
            if (!indices) continue;
            for (int64_t i = 0; !four && i < it->columns; i++) indices[i] = where[i];
            indices += it->columns;
        }
}

/* Values added, one after the other, to where they belong in their planes, which are 0 before; returns how many do not
 * belong there. */
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
