/* Functions of the rows of a float32 matrix: softmax and losses, reductions, layer norm, a bias.
 *
 * Their first arguments are the arrays that have a part for each row, followed by the number of rows and their length: so the
 * rows can be shared among several threads.
 *
 * Sums of rows are taken pairwise, or in many lanes, which loses fewer digits than a sequential sum.
 */

void single_exp(const float *from, float *to, int64_t n) {
    EXPECT(n == 0 || (IS_AT(from) && IS_AT(to)));
    EXPECT(n >= 0);
    for (; n >= BLOCK; n -= BLOCK, from += BLOCK, to += BLOCK) {
        will_read(from, BLOCK * sizeof *from);
        will_write(to, BLOCK * sizeof *to);
        exponentials(from, 0, to, BLOCK);
    }
    exponentials(from, 0, to, n);
}

/* `to` may be `from`. */
void softmax(const float *from, float *to, int64_t rows, int64_t n) {
    EXPECT(IS_AT(from) && IS_AT(to));
    EXPECT(rows >= 0 && n > 0);
    for (int64_t row = 0; row < rows; row++, from += n, to += n) {
        exponentials(from, largest(from, n), to, n);
        float factor = 1 / long_sum(to, n);
        LANES
        for (int64_t i = 0; i < n; i++) to[i] = to[i] * factor;
    }
}

/* `to` must not be `from`. */
void log_softmax(const float *from, float *to, int64_t rows, int64_t n) {
    EXPECT(IS_AT(from) && IS_AT(to));
    EXPECT(rows >= 0 && n > 0);
    for (int64_t row = 0; row < rows; row++, from += n, to += n) {
        float most = largest(from, n);
        exponentials(from, most, to, n);
        float sum = log_f(long_sum(to, n));
        LANES
        for (int64_t i = 0; i < n; i++) to[i] = (from[i] - most) - sum;
    }
}

/* `logs`: the log_softmax of each row of scores; `losses`: its value at the row's class, the negative loss.  `wrong` is set if
 * there is no such class. */
void class_losses(const float *scores, const int64_t *classes, float *logs, float *losses, int64_t rows, int64_t n,
                  int64_t *wrong) {
    EXPECT(IS_AT(scores) && IS_AT(classes) && IS_AT(logs) && IS_AT(losses) && IS_AT(wrong));
    EXPECT(rows >= 0 && n > 0);
    log_softmax(scores, logs, rows, n);
    for (int64_t row = 0; row < rows; row++)
        if ((uint64_t)classes[row] < (uint64_t)n) losses[row] = logs[row * n + classes[row]];
        else *wrong = 1;
}

/* The mean, if `averages`, or the sum, of losses that are given with the opposite sign, and their number. */
void class_loss(const float *losses, float *loss, float *total, int64_t rows, int64_t averages) {
    EXPECT(IS_AT(losses) && IS_AT(loss) && IS_AT(total));
    EXPECT(rows >= 0);
    float sum = 0 - pairwise_sum(losses, rows);
    *total = (float)rows;
    *loss = averages ? sum / *total : sum;
}

void cross_entropy_gradient(const float *logs, const int64_t *classes, float *to, int64_t rows, int64_t n,
                            const float *gradient, const float *total, int64_t averages, int64_t *wrong) {
    EXPECT(IS_AT(logs) && IS_AT(classes) && IS_AT(to) && IS_AT(gradient) && IS_AT(total) && IS_AT(wrong));
    EXPECT(rows >= 0 && n > 0);
    const float share = averages ? *gradient / *total : *gradient;
    const int64_t count = rows * n;
    LANES
    for (int64_t i = 0; i < count; i++) to[i] = exp_f(logs[i]) * share;
    for (int64_t row = 0; row < rows; row++)
        if ((uint64_t)classes[row] < (uint64_t)n) to[row * n + classes[row]] -= share;
        else *wrong = 1;
}

/* In four vectors: many lanes lose as few digits as a pairwise sum. */
static float sum_of_products(const float *one, const float *other, int64_t n) {
    eight a = {0}, b = {0}, c = {0}, d = {0};
    int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        a += load(one + i) * load(other + i);
        b += load(one + i + 8) * load(other + i + 8);
        c += load(one + i + 16) * load(other + i + 16);
        d += load(one + i + 24) * load(other + i + 24);
    }
    float sum = across((a + b) + (c + d));
    for (; i < n; i++) sum += one[i] * other[i];
    return sum;
}

static float long_squares(const float *values, int64_t n) {
    if (n <= 1024) return sum_of_products(values, values, n);
    int64_t half = n / 2;
    half -= half % 32;
    return long_squares(values, half) + long_squares(values + half, n - half);
}

/* The largest number, or the smallest, as the negative of the largest negative; nan if one of the numbers is nan. */
static inline __attribute__((always_inline)) float extremum(const float *values, int64_t n, const int smallest) {
    float found = smallest ? -values[0] : values[0];
    int64_t i = 1;
    if (n >= 32) {
        eight best[4];
        flags odd = {0};
        for (int part = 0; part < 4; part++) best[part] = all(-INF);
        for (i = 0; i + 32 <= n; i += 32)
            for (int part = 0; part < 4; part++) {
                const eight given = load(values + i + 8 * part), value = smallest ? -given : given;
                best[part] = LARGER(best[part], value);
                odd |= value != value;
            }
        const eight most = LARGER(LARGER(best[0], best[1]), LARGER(best[2], best[3]));
        for (int lane = 0; lane < 8; lane++) {
            found = most[lane] > found ? most[lane] : found;
            if (odd[lane]) return __builtin_nanf("");
        }
    }
    for (; i < n; i++) {
        const float value = smallest ? -values[i] : values[i];
        found = (value > found) | (value != value) ? value : found;
    }
    return smallest ? -found : found;
}

static float largest_or_nan(const float *values, int64_t n) { return extremum(values, n, 0); }
static float smallest_or_nan(const float *values, int64_t n) { return extremum(values, n, 1); }

enum { STRANDS = 16 };

/* In double precision: intermediate products of large and small factors must not become infinity or 0, in any order. */
static float product(const float *values, int64_t n) {
    double strands[STRANDS];
    for (int j = 0; j < STRANDS; j++) strands[j] = 1;
    int64_t i = 0;
    for (; i + STRANDS <= n; i += STRANDS)
        for (int j = 0; j < STRANDS; j++) strands[j] *= values[i + j];
    for (int apart = STRANDS / 2; apart; apart /= 2)
        for (int j = 0; j < apart; j++) strands[j] *= strands[j + apart];
    for (; i < n; i++) strands[0] *= values[i];
    return (float)strands[0];
}

/* Reduces each row of n elements of `all` to one number; the last row may be shorter. */
#define OF_ROWS(NAME, FUNCTION)                                                                              \
    void NAME(const float *from, float *to, int64_t rows, int64_t n, const float *all, int64_t count) {      \
        for (; rows; rows--, from += n, to++) {                                                              \
            const int64_t left = all + count - from;                                                         \
            *to = FUNCTION(from, left < n ? left : n);                                                       \
        }                                                                                                    \
    }
OF_ROWS(row_sums, long_sum)
OF_ROWS(row_squares, long_squares)
OF_ROWS(row_products, product)
OF_ROWS(row_largest, largest_or_nan)
OF_ROWS(row_smallest, smallest_or_nan)

/* `weight` and `bias` may be null; `to` may be `from`. */
void layer_norm(const float *from, float *to, float *means, float *scales, int64_t rows, int64_t n, const float *weight,
                const float *bias, float eps) {
    EXPECT(IS_AT(from) && IS_AT(to) && IS_AT(means) && IS_AT(scales));
    EXPECT(IS_AT_OR_NULL(weight) && IS_AT_OR_NULL(bias));
    EXPECT(rows >= 0 && n > 0);
    for (int64_t row = 0; row < rows; row++, from += n, to += n) {
        float mean = long_sum(from, n) / (float)n;
        LANES
        for (int64_t i = 0; i < n; i++) to[i] = from[i] - mean;
        float scale = 1 / __builtin_sqrtf(sum_of_products(to, to, n) / (float)n + eps);
        means[row] = mean;
        scales[row] = scale;
        if (weight && bias) {
            LANES
            for (int64_t i = 0; i < n; i++) to[i] = to[i] * scale * weight[i] + bias[i];
        } else if (weight) {
            LANES
            for (int64_t i = 0; i < n; i++) to[i] = to[i] * scale * weight[i];
        } else if (bias) {
            LANES
            for (int64_t i = 0; i < n; i++) to[i] = to[i] * scale + bias[i];
        } else {
            LANES
            for (int64_t i = 0; i < n; i++) to[i] = to[i] * scale;
        }
    }
}

/* The gradients of some parts, of LAYER_NORM_PART rows each.  The gradient by the rows goes to `to`.  `parts` has four rows for
 * each part: its gradients by weight and by bias, and two rows of scratch memory.  Sums by part do not depend on the number of
 * threads.  `weight` may be null. */
void layer_norm_gradient(const float *from, const float *gradient, float *to, const float *means, const float *scales,
                         int64_t first, int64_t count, int64_t rows, int64_t n, const float *weight, float *parts) {
    EXPECT(IS_AT(from) && IS_AT(gradient) && IS_AT(to) && IS_AT(means) && IS_AT(scales) && IS_AT(parts));
    EXPECT(IS_AT_OR_NULL(weight));
    EXPECT(first >= 0 && count >= 0 && rows >= 0 && n > 0);
    for (int64_t part = first; part < first + count; part++) {
        float *by_weight = parts + part * 4 * n, *by_bias = by_weight + n, *normal = by_bias + n, *weighted = normal + n;
        memset(by_weight, 0, (size_t)n * 2 * sizeof(float));
        const int64_t end = (part + 1) * LAYER_NORM_PART < rows ? (part + 1) * LAYER_NORM_PART : rows;
        for (int64_t row = part * LAYER_NORM_PART; row < end; row++) {
            const float mean = means[row], scale = scales[row];
            const float *x = from + row * n, *outer = gradient + row * n;
            float *by_x = to + row * n;
            LANES
            for (int64_t i = 0; i < n; i++) {
                float value = (x[i] - mean) * scale;
                normal[i] = value;
                weighted[i] = weight ? outer[i] * weight[i] : outer[i];
                by_weight[i] += outer[i] * value;
                by_bias[i] += outer[i];
            }
            float slope = sum_of_products(weighted, normal, n) / (float)n;
            float offset = long_sum(weighted, n) / (float)n;
            LANES
            for (int64_t i = 0; i < n; i++) by_x[i] = ((weighted[i] - normal[i] * slope) - offset) * scale;
        }
    }
}

void add_to_rows(float *to, int64_t rows, int64_t n, const float *row) { add_to_each(to, rows, n, n, row); }

void column_sums(const float *from, float *to, int64_t n, int64_t rows, int64_t apart) { sum_columns(from, to, n, rows, apart); }
