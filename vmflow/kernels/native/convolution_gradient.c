/* The gradients of convolutions by the input, and by weight and bias; for convolution.c, which stands before this. */

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

/* The sums of products of f rows and t others, added to a matrix whose rows are `step` apart. */
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

/* What t taps of the windows at `positions` see, times v vectors of filters, added up over pixels and to `to`, whose
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

/* Taps from channel to channel, so that what was just written is not needed at once. */
static int64_t *taps_by_place(const struct convolution *it, const struct sizes *s, float **room) {
    int64_t window = it->kernel_rows * it->kernel_columns, *found = (int64_t *)take(room, 2 * s->taps), *next = found;
    for (int64_t place = 0; place < window; place++)
        for (int64_t tap = place; tap < s->taps; tap += window) *next++ = tap;
    return found;
}

/* Each kernel point-reflected, channels in the place of filters. */
static void turn_weight(const struct convolution *it, const float *weight, float *to) {
    const int64_t window = it->kernel_rows * it->kernel_columns;
    for (int64_t group = 0; group < it->groups; group++, to += it->channels * it->filters * window)
        for (int64_t filter = 0; filter < it->filters; filter++)
            for (int64_t channel = 0; channel < it->channels; channel++, weight += window)
                for (int64_t tap = 0; tap < window; tap++)
                    to[(channel * it->filters + filter) * window + window - 1 - tap] = weight[tap];
}

/* The gradient of one image, whose pixels are in lines. */
static void add_lines(const struct convolution *it, const struct sizes *s, const float *matrix, const float *rows,
                      const int64_t *places, const int64_t *offsets, float *image) {
    const int64_t number = parts(s->taps, TOGETHER);
    for (int64_t pixel = 0; pixel < s->span; pixel += PIXELS)
        for (int64_t part = 0; part < number; part++) {
            int64_t first = begin(s->taps, number, part), next = begin(s->taps, number, part + 1);
            multiply_and_add(next - first, matrix + first * it->filters, rows + pixel, places, it->filters,
                             image + pixel, offsets + first);
        }
}

/* The gradient of some images, of which a few pixels at a time are gathered in `rows`. */
static void add_panels(const struct convolution *it, const struct sizes *s, const float *matrix, const float *gradient,
                       int64_t count, float *rows, const int64_t *places, const int64_t *offsets, float *images) {
    struct run runs[PIXELS];
    float sums[TOGETHER * PIXELS];
    int64_t targets[TOGETHER];
    for (int64_t i = 0; i < TOGETHER; i++) targets[i] = i * PIXELS;
    const int64_t number = parts(s->taps, TOGETHER);
    for (int64_t pixel = 0; pixel < count * s->pixels; pixel += PIXELS) {
        const int64_t some = fewer(PIXELS, count * s->pixels - pixel), found = find_runs(it, s, pixel, some, runs);
        copy_pixels(it, s, (float *)gradient, pixel, some, PIXELS, rows, 1);
        for (int64_t part = 0; part < number; part++) {
            int64_t first = begin(s->taps, number, part), next = begin(s->taps, number, part + 1);
            multiply(next - first, PIXELS, matrix + first * it->filters, rows, places, it->filters, 0, sums, targets);
            for (int64_t tap = first; tap < next; tap++)
                for (int64_t i = 0; i < found; i++)
                    add_few(images + offsets[tap] + runs[i].from, sums + targets[tap - first] + runs[i].at,
                            runs[i].count);
        }
    }
}

/* The gradient by the input. */
void convolution_input_gradient(const struct convolution *it, const float *gradient, const float *weight, float *to,
                                float *room) {
    EXPECT_CONVOLUTION(it);
    EXPECT(IS_AT(gradient) && IS_AT(weight) && IS_AT(to) && IS_AT(room));
    struct sizes s = sizes_of(it);
    struct convolution other;
    room = aligned(room);
    if (it->filters <= VERY_FEW && turned(it, &other)) {
        float *kernel = take(&room, it->groups * it->filters * s.taps);
        turn_weight(it, weight, kernel);
        convolution(&other, gradient, kernel, 0, to, room);
        return;
    }
    const int lined = s.straight && it->filters * (whole(s.span, PIXELS) - s.pixels) <= SPREADING * s.pixels;
    const int64_t apart = lined ? whole(s.span, PIXELS) : PIXELS;
    float *images = take(&room, s.images * s.image), *rows = zeros(&room, it->filters * apart);
    const int64_t *order = taps_by_place(it, &s, &room), *places = steps(it->filters, apart, &room);
    int64_t *offsets = (int64_t *)take(&room, 2 * s.taps);
    for (int64_t tap = 0; tap < s.taps; tap++) offsets[tap] = offset_of(it, &s, order[tap]);
    for (int64_t group = 0; group < it->groups; group++) {
        const float *matrix = packed(weight + group * it->filters * s.taps, s.taps, it->filters, order, s.taps, room);
        for (int64_t sample = 0, count; sample < it->samples; sample += count) {
            count = fewer(s.images, it->samples - sample);
            const float *source = gradient + (sample * it->groups + group) * it->filters * s.pixels;
            memset(images, 0, (size_t)piece(s.images * s.image) * sizeof(float));
            if (!lined) add_panels(it, &s, matrix, source, count, rows, places, offsets, images);
            for (int64_t image = 0; lined && image < count; image++) {
                copy_into_lines(it, &s, source + image * it->groups * it->filters * s.pixels, apart, rows);
                add_lines(it, &s, matrix, rows, places, offsets, images + image * s.image);
            }
            float *target = to + (sample * it->groups + group) * it->channels * it->height * it->width;
            copy_images(it, &s, target, images, count, 0);
        }
    }
}

/* Pixels as rows of filters, a part of `wide` filters after the other; of what is no filter 0. */
static void turn_pixels(const struct convolution *it, const struct sizes *s, const float *from, int64_t first,
                        int64_t count, int64_t filter, int64_t wide, float *to) {
    int64_t sample = first / s->pixels, pixel = first % s->pixels, filters = fewer(wide, it->filters - filter);
    for (int64_t at = 0; at < count; sample++, pixel = 0) {
        int64_t length = fewer(s->pixels - pixel, count - at);
        const float *place = from + (sample * it->groups * it->filters + filter) * s->pixels + pixel;
        for (int64_t f = 0; f < wide; f++)
            for (int64_t i = 0; i < length; i++)
                to[(at + i) * wide + f] = f < filters ? place[f * s->pixels + i] : 0;
        at += length;
    }
}

static void weight_gradient_of_few(const struct convolution *it, const struct sizes *s, const float *images,
                                   int64_t count, const float *gradient, float *rows, const int64_t *offsets,
                                   float *weight, float *bias) {
    const int64_t filters = parts(it->filters, 3), taps = parts(s->taps, 4), apart = whole(s->span, 8);
    for (int64_t image = 0; image < count; image++, images += s->image) {
        copy_into_lines(it, s, gradient + image * it->groups * it->filters * s->pixels, apart, rows);
        for (int64_t pixel = 0; pixel < s->span; pixel += LONG_STRETCH) {
            int64_t some = fewer(LONG_STRETCH, apart - pixel);
            for (int64_t t = 0; t < taps; t++) {
                int64_t tap = begin(s->taps, taps, t), wide = begin(s->taps, taps, t + 1) - tap;
                for (int64_t f = 0; f < filters; f++) {
                    int64_t filter = begin(it->filters, filters, f), high = begin(it->filters, filters, f + 1) - filter;
                    multiply_rows(high, wide, rows + filter * apart + pixel, apart, images + pixel, offsets + tap, some,
                                  weight + filter * s->taps + tap, s->taps);
                }
            }
        }
        for (int64_t filter = 0; bias && filter < it->filters; filter++) {
            eight sum = all(0);
            for (int64_t i = 0; i < apart; i += 8) sum += load(rows + filter * apart + i);
            bias[filter] += across(sum);
        }
    }
}

static void weight_gradient_of_many(const struct convolution *it, const struct sizes *s, const float *images,
                                    int64_t count, const float *gradient, float *rows, const int64_t *offsets,
                                    const int64_t *positions, float *sums, float *bias) {
    const int64_t filters = whole(it->filters, 8), taps = parts(s->taps, TOGETHER);
    for (int64_t pixel = 0; pixel < count * s->pixels; pixel += STRETCH) {
        int64_t some = fewer(STRETCH, count * s->pixels - pixel);
        for (int64_t filter = 0, wide; filter < filters; filter += wide) {
            wide = fewer(filters - filter, 16);
            turn_pixels(it, s, gradient, pixel, some, filter, wide, rows);
            for (int64_t t = 0; t < taps; t++) {
                int64_t tap = begin(s->taps, taps, t), next = begin(s->taps, taps, t + 1);
                multiply_outer(next - tap, wide / 8, images, offsets + tap, positions + pixel, some, rows,
                               sums + tap * filters + filter, filters);
            }
            for (int64_t f = 0; bias && f < wide; f += 8) {
                eight sum = all(0);
                for (int64_t i = 0; i < some; i++) sum += load(rows + i * wide + f);
                for (int64_t i = 0; i < fewer(8, it->filters - filter - f); i++) bias[filter + f + i] += sum[i];
            }
        }
    }
}

/* The gradients by the weight and, unless it is null, by the bias. */
void convolution_weight_gradient(const struct convolution *it, const float *from, const float *gradient, float *weight,
                                 float *bias, float *room) {
    EXPECT_CONVOLUTION(it);
    EXPECT(IS_AT(from) && IS_AT(gradient) && IS_AT(weight) && IS_AT_OR_NULL(bias) && IS_AT(room));
    struct sizes s = sizes_of(it);
    room = aligned(room);
    const int few = s.straight && it->filters <= FEW;
    const int64_t filters = whole(it->filters, 8);
    float *images = zeros(&room, s.images * s.image), *sums = take(&room, s.taps * filters);
    float *rows = zeros(&room, few ? it->filters * whole(s.span, 8) : STRETCH * 16);
    const int64_t *offsets = tap_offsets(it, &s, &room);
    int64_t *positions = (int64_t *)take(&room, 2 * s.images * s.pixels);
    for (int64_t image = 0, pixel = 0; image < s.images; image++)
        for (int64_t row = 0; row < it->rows; row++)
            for (int64_t column = 0; column < it->columns; column++)
                positions[pixel++] = image * s.image + row * it->row_stride * s.line + column * it->column_stride;
    if (few) memset(weight, 0, (size_t)(it->groups * it->filters * s.taps) * sizeof(float));
    if (bias) memset(bias, 0, (size_t)(it->groups * it->filters) * sizeof(float));
    for (int64_t group = 0; group < it->groups; group++) {
        float *by_weight = weight + group * it->filters * s.taps, *by_bias = bias ? bias + group * it->filters : 0;
        if (!few) memset(sums, 0, (size_t)(s.taps * filters) * sizeof(float));
        for (int64_t sample = 0; sample < it->samples; sample += s.images) {
            int64_t count = fewer(s.images, it->samples - sample);
            const float *source = from + (sample * it->groups + group) * it->channels * it->height * it->width;
            const float *right = gradient + (sample * it->groups + group) * it->filters * s.pixels;
            copy_images(it, &s, (float *)source, images, count, 1);
            if (few)
                weight_gradient_of_few(it, &s, images, count, right, rows, offsets, by_weight, by_bias);
            else
                weight_gradient_of_many(it, &s, images, count, right, rows, offsets, positions, sums, by_bias);
        }
        for (int64_t filter = 0; !few && filter < it->filters; filter++)
            for (int64_t tap = 0; tap < s.taps; tap++) by_weight[filter * s.taps + tap] = sums[tap * filters + filter];
    }
}
