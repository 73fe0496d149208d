/* The gradients of convolutions by the input, and by weight and bias; this follows convolution.c in the source. */

static inline void add_few(float *to, const float *from, int64_t count) {
    for (; count >= 8; count -= 8, to += 8, from += 8) store(to, load(to) + load(from));
    if (count & 4) {
        four more, sum;
        memcpy(&more, from, 16);
        memcpy(&sum, to, 16);
        sum += more;
        memcpy(to, &sum, 16);
        to += 4, from += 4;
    }
    for (count &= 3; count; count--) *to++ += *from++;
}

/* Add the sums of products of f rows and t others to a matrix whose rows are `step` apart. */
ALWAYS row_products(const int f, const int t, const float *one, int64_t apart, const float *other,
                    const int64_t *places, int64_t count, float *to, int64_t step) {
    eight sums[3][4];
    for (int i = 0; i < f; i++)
        for (int j = 0; j < t; j++) sums[i][j] = all(0);
    for (int64_t at = 0; at < count; at += 8) {
        eight values[4];
        for (int j = 0; j < t; j++) values[j] = load(other + places[j] + at);
        for (int i = 0; i < f; i++) {
            eight factor = load(one + i * apart + at);
            for (int j = 0; j < t; j++) sums[i][j] = FMA8(factor, values[j], sums[i][j]);
        }
    }
    for (int i = 0; i < f; i++)
        add_across(to + i * step, t, sums[i]);
}

static void multiply_rows(int64_t f, int64_t t, const float *one, int64_t apart, const float *other,
                          const int64_t *places, int64_t count, float *to, int64_t step) {
#define CASE(f, t) \
    case f * 8 + t: row_products(f, t, one, apart, other, places, count, to, step); break;
#define CASES(f) CASE(f, 1) CASE(f, 2) CASE(f, 3) CASE(f, 4)
    switch (f * 8 + t) {
        CASES(1) CASES(2) CASES(3)
    }
#undef CASES
#undef CASE
}

/* Multiply t taps of the windows at `positions` by v vectors of filters, sum over the pixels, and add the sums to `to`, whose
 * rows are `step` apart. */
ALWAYS outer_products(const int t, const int v, const float *images, const int64_t *places, const int64_t *positions,
                      int64_t count, const float *filters, float *to, int64_t step) {
    eight sums[TOGETHER][2];
    for (int i = 0; i < t; i++)
        for (int j = 0; j < v; j++) sums[i][j] = all(0);
    for (int64_t at = 0; at < count; at++, filters += 8 * v) {
        const float *seen = images + positions[at];
        eight values[2];
        for (int j = 0; j < v; j++) values[j] = load(filters + 8 * j);
        for (int i = 0; i < t; i++) {
            eight factor = all(seen[places[i]]);
            for (int j = 0; j < v; j++) sums[i][j] = FMA8(factor, values[j], sums[i][j]);
        }
    }
    for (int i = 0; i < t; i++)
        for (int j = 0; j < v; j++) {
            float *place = to + i * step + 8 * j;
            store(place, load(place) + sums[i][j]);
        }
}

static void multiply_outer(int64_t t, int64_t v, const float *images, const int64_t *places, const int64_t *positions,
                           int64_t count, const float *filters, float *to, int64_t step) {
#define CASE(t, v) \
    case t * 8 + v: outer_products(t, v, images, places, positions, count, filters, to, step); break;
#define CASES(v) CASE(1, v) CASE(2, v) CASE(3, v) CASE(4, v) CASE(5, v) CASE(6, v)
    switch (t * 8 + v) {
        CASES(1) CASES(2)
    }
#undef CASES
#undef CASE
}

/* The taps in an order that alternates between channels, so that the next step does not wait for the last one's results. */
static int64_t *taps_by_place(const struct convolution *op, const struct sizes *s, float **scratch) {
    int64_t window = op->kernel_rows * op->kernel_columns, *found = (int64_t *)take(scratch, 2 * s->taps), *next = found;
    for (int64_t place = 0; place < window; place++)
        for (int64_t tap = place; tap < s->taps; tap += window) *next++ = tap;
    return found;
}

/* Each kernel point-reflected, with channels in place of filters. */
static void turn_weight(const struct convolution *op, const float *weight, float *to) {
    const int64_t window = op->kernel_rows * op->kernel_columns;
    for (int64_t group = 0; group < op->groups; group++, to += op->channels * op->filters * window)
        for (int64_t filter = 0; filter < op->filters; filter++)
            for (int64_t channel = 0; channel < op->channels; channel++, weight += window)
                for (int64_t tap = 0; tap < window; tap++)
                    to[(channel * op->filters + filter) * window + window - 1 - tap] = weight[tap];
}

/* Add up the gradient by one input image from the output's gradient, whose pixels are in lines. */
static void add_lines(const struct convolution *op, const struct sizes *s, const float *matrix, const float *rows,
                      const int64_t *places, const int64_t *offsets, float *image) {
    const int64_t number = parts(s->taps, TOGETHER);
    for (int64_t pixel = 0; pixel < s->span; pixel += PIXELS)
        for (int64_t part = 0; part < number; part++) {
            int64_t first = begin(s->taps, number, part), next = begin(s->taps, number, part + 1);
            multiply_and_add(next - first, matrix + first * op->filters, rows + pixel, places, op->filters,
                             image + pixel, offsets + first);
        }
}

/* Add up the gradient by some input images from the output's gradient, a few pixels at a time, gathered in `rows`. */
static void add_panels(const struct convolution *op, const struct sizes *s, const float *matrix, const float *gradient,
                       int64_t count, float *rows, const int64_t *places, const int64_t *offsets, float *images) {
    struct run runs[PIXELS];
    float sums[TOGETHER * PIXELS];
    int64_t targets[TOGETHER];
    for (int64_t i = 0; i < TOGETHER; i++) targets[i] = i * PIXELS;
    const int64_t number = parts(s->taps, TOGETHER);
    for (int64_t pixel = 0; pixel < count * s->pixels; pixel += PIXELS) {
        const int64_t some = fewer(PIXELS, count * s->pixels - pixel), found = find_runs(op, s, pixel, some, runs);
        copy_pixels(op, s, (float *)gradient, pixel, some, PIXELS, rows, 1);
        for (int64_t part = 0; part < number; part++) {
            int64_t first = begin(s->taps, number, part), next = begin(s->taps, number, part + 1);
            multiply(next - first, PIXELS, matrix + first * op->filters, rows, places, op->filters, 0, sums, targets);
            for (int64_t tap = first; tap < next; tap++)
                for (int64_t i = 0; i < found; i++)
                    add_few(images + offsets[tap] + runs[i].from, sums + targets[tap - first] + runs[i].at,
                            runs[i].count);
        }
    }
}

/* The gradient by the input. */
void convolution_input_gradient(const struct convolution *op, const float *gradient, const float *weight, float *to,
                                float *scratch) {
    EXPECT_CONVOLUTION(op);
    EXPECT(IS_AT(gradient) && IS_AT(weight) && IS_AT(to) && IS_AT(scratch));
    struct sizes s = sizes_of(op);
    struct convolution other;
    scratch = aligned(scratch);
    if (op->filters <= VERY_FEW && turned(op, &other)) {
        float *kernel = take(&scratch, op->groups * op->filters * s.taps);
        turn_weight(op, weight, kernel);
        convolution(&other, gradient, kernel, 0, to, scratch);
        return;
    }
    const int lined = s.adjacent && op->filters * (whole(s.span, PIXELS) - s.pixels) <= SPREADING * s.pixels;
    const int64_t apart = lined ? whole(s.span, PIXELS) : PIXELS;
    float *images = take(&scratch, s.images * s.image), *rows = zeros(&scratch, op->filters * apart);
    const int64_t *order = taps_by_place(op, &s, &scratch), *places = steps(op->filters, apart, &scratch);
    int64_t *offsets = (int64_t *)take(&scratch, 2 * s.taps);
    for (int64_t tap = 0; tap < s.taps; tap++) offsets[tap] = offset_of(op, &s, order[tap]);
    for (int64_t group = 0; group < op->groups; group++) {
        const float *matrix = packed(weight + group * op->filters * s.taps, s.taps, op->filters, order, s.taps, scratch);
        for (int64_t sample = 0, count; sample < op->samples; sample += count) {
            count = fewer(s.images, op->samples - sample);
            const float *source = gradient + (sample * op->groups + group) * op->filters * s.pixels;
            memset(images, 0, (size_t)piece(s.images * s.image) * sizeof(float));
            if (!lined) add_panels(op, &s, matrix, source, count, rows, places, offsets, images);
            for (int64_t image = 0; lined && image < count; image++) {
                copy_into_lines(op, &s, source + image * op->groups * op->filters * s.pixels, apart, rows);
                add_lines(op, &s, matrix, rows, places, offsets, images + image * s.image);
            }
            float *target = to + (sample * op->groups + group) * op->channels * op->height * op->width;
            copy_images(op, &s, target, images, count, 0);
        }
    }
}

/* Transpose pixels into rows of filters, in parts of `wide` filters; missing filters are 0. */
static void turn_pixels(const struct convolution *op, const struct sizes *s, const float *from, int64_t first,
                        int64_t count, int64_t filter, int64_t wide, float *to) {
    int64_t sample = first / s->pixels, pixel = first % s->pixels, filters = fewer(wide, op->filters - filter);
    for (int64_t at = 0; at < count; sample++, pixel = 0) {
        int64_t length = fewer(s->pixels - pixel, count - at);
        const float *place = from + (sample * op->groups * op->filters + filter) * s->pixels + pixel;
        for (int64_t f = 0; f < wide; f++)
            for (int64_t i = 0; i < length; i++)
                to[(at + i) * wide + f] = f < filters ? place[f * s->pixels + i] : 0;
        at += length;
    }
}

static void weight_gradient_of_few(const struct convolution *op, const struct sizes *s, const float *images,
                                   int64_t count, const float *gradient, float *rows, const int64_t *offsets,
                                   float *weight, float *bias) {
    const int64_t filters = parts(op->filters, 3), taps = parts(s->taps, 4), apart = whole(s->span, 8);
    for (int64_t image = 0; image < count; image++, images += s->image) {
        copy_into_lines(op, s, gradient + image * op->groups * op->filters * s->pixels, apart, rows);
        for (int64_t pixel = 0; pixel < s->span; pixel += LONG_STRETCH) {
            int64_t some = fewer(LONG_STRETCH, apart - pixel);
            for (int64_t t = 0; t < taps; t++) {
                int64_t tap = begin(s->taps, taps, t), wide = begin(s->taps, taps, t + 1) - tap;
                for (int64_t f = 0; f < filters; f++) {
                    int64_t filter = begin(op->filters, filters, f), high = begin(op->filters, filters, f + 1) - filter;
                    multiply_rows(high, wide, rows + filter * apart + pixel, apart, images + pixel, offsets + tap, some,
                                  weight + filter * s->taps + tap, s->taps);
                }
            }
        }
        for (int64_t filter = 0; bias && filter < op->filters; filter++) {
            eight sum = all(0);
            for (int64_t i = 0; i < apart; i += 8) sum += load(rows + filter * apart + i);
            bias[filter] += across(sum);
        }
    }
}

static void weight_gradient_of_many(const struct convolution *op, const struct sizes *s, const float *images,
                                    int64_t count, const float *gradient, float *rows, const int64_t *offsets,
                                    const int64_t *positions, float *sums, float *bias) {
    const int64_t filters = whole(op->filters, 8), taps = parts(s->taps, TOGETHER);
    for (int64_t pixel = 0; pixel < count * s->pixels; pixel += STRETCH) {
        int64_t some = fewer(STRETCH, count * s->pixels - pixel);
        for (int64_t filter = 0, wide; filter < filters; filter += wide) {
            wide = fewer(filters - filter, 16);
            turn_pixels(op, s, gradient, pixel, some, filter, wide, rows);
            for (int64_t t = 0; t < taps; t++) {
                int64_t tap = begin(s->taps, taps, t), next = begin(s->taps, taps, t + 1);
                multiply_outer(next - tap, wide / 8, images, offsets + tap, positions + pixel, some, rows,
                               sums + tap * filters + filter, filters);
            }
            for (int64_t f = 0; bias && f < wide; f += 8) {
                eight sum = all(0);
                for (int64_t i = 0; i < some; i++) sum += load(rows + i * wide + f);
                for (int64_t i = 0; i < fewer(8, op->filters - filter - f); i++) bias[filter + f + i] += sum[i];
            }
        }
    }
}

/* The gradients by the weight and, unless it is null, by the bias. */
void convolution_weight_gradient(const struct convolution *op, const float *from, const float *gradient, float *weight,
                                 float *bias, float *scratch) {
    EXPECT_CONVOLUTION(op);
    EXPECT(IS_AT(from) && IS_AT(gradient) && IS_AT(weight) && IS_AT_OR_NULL(bias) && IS_AT(scratch));
    struct sizes s = sizes_of(op);
    scratch = aligned(scratch);
    const int few = s.adjacent && op->filters <= FEW;
    const int64_t filters = whole(op->filters, 8);
    float *images = zeros(&scratch, s.images * s.image), *sums = take(&scratch, s.taps * filters);
    float *rows = zeros(&scratch, few ? op->filters * whole(s.span, 8) : STRETCH * 16);
    const int64_t *offsets = tap_offsets(op, &s, &scratch);
    int64_t *positions = (int64_t *)take(&scratch, 2 * s.images * s.pixels);
    for (int64_t image = 0, pixel = 0; image < s.images; image++)
        for (int64_t row = 0; row < op->rows; row++)
            for (int64_t column = 0; column < op->columns; column++)
                positions[pixel++] = image * s.image + row * op->row_stride * s.line + column * op->column_stride;
    if (few) memset(weight, 0, (size_t)(op->groups * op->filters * s.taps) * sizeof(float));
    if (bias) memset(bias, 0, (size_t)(op->groups * op->filters) * sizeof(float));
    for (int64_t group = 0; group < op->groups; group++) {
        float *by_weight = weight + group * op->filters * s.taps, *by_bias = bias ? bias + group * op->filters : 0;
        if (!few) memset(sums, 0, (size_t)(s.taps * filters) * sizeof(float));
        for (int64_t sample = 0; sample < op->samples; sample += s.images) {
            int64_t count = fewer(s.images, op->samples - sample);
            const float *source = from + (sample * op->groups + group) * op->channels * op->height * op->width;
            const float *right = gradient + (sample * op->groups + group) * op->filters * s.pixels;
            copy_images(op, &s, (float *)source, images, count, 1);
            if (few)
                weight_gradient_of_few(op, &s, images, count, right, rows, offsets, by_weight, by_bias);
            else
                weight_gradient_of_many(op, &s, images, count, right, rows, offsets, positions, sums, by_bias);
        }
        for (int64_t filter = 0; !few && filter < op->filters; filter++)
            for (int64_t tap = 0; tap < s.taps; tap++) by_weight[filter * s.taps + tap] = sums[tap * filters + filter];
    }
}
