/* Batch norm of float32: (samples, channels, values), each channel normalised over samples and values.
 *
 * Where a sample has few elements, sums of each of them are taken over the samples, and what is a number for each
 * channel is repeated for each element: so loops run over whole samples.  Otherwise they run over the values of a
 * channel.
 */

enum { FEW_ELEMENTS = 1 << 13 };

/* After so many samples what was added up goes to the rest: sums of more would lose digits. */
enum { MANY_SAMPLES = 128 };

struct channels {
    int64_t samples, channels, values;
};

/* What is added up: elements, squares of their distance from a mean, or its products with other elements. */
enum { ELEMENT, SQUARE, PRODUCT };

#define ADDEND(kind, x, y, mean) ((kind) == ELEMENT ? (x) : ((x) - (mean)) * ((kind) == SQUARE ? (x) - (mean) : (y)))

static int few_elements(const struct channels *it) {
    return it->channels * it->values <= FEW_ELEMENTS;
}

/* A number for each channel, repeated for each element of a sample. */
static void repeat(const struct channels *it, const float *numbers, float *to) {
    for (int64_t channel = 0; channel < it->channels; channel++)
        for (int64_t i = 0; i < it->values; i++) *to++ = numbers[channel];
}

static inline __attribute__((always_inline)) float plane_total(const int kind, const float *one, const float *other,
                                                               float mean, int64_t n) {
    eight sums[4] = {all(0), all(0), all(0), all(0)};
    int64_t i = 0;
    for (; i + 32 <= n; i += 32)
        for (int j = 0; j < 4; j++) {
            eight x = load(one + i + 8 * j), y = load(other + i + 8 * j);
            sums[j] += ADDEND(kind, x, y, mean);
        }
    float sum = across((sums[0] + sums[1]) + (sums[2] + sums[3]));
    for (; i < n; i++) sum += ADDEND(kind, one[i], other[i], mean);
    return sum;
}

/* The totals of all channels; `room` has two samples. */
static inline __attribute__((always_inline)) void totals(const int kind, const struct channels *it, const float *one,
                                                         const float *other, const float *means, float *to,
                                                         float *room) {
    const int64_t width = it->channels * it->values;
    memset(to, 0, (size_t)it->channels * sizeof(float));
    if (!few_elements(it)) {
        for (int64_t plane = 0; plane < it->samples * it->channels; plane++, one += it->values, other += it->values)
            to[plane % it->channels] +=
                plane_total(kind, one, other, kind == ELEMENT ? 0 : means[plane % it->channels], it->values);
        return;
    }
    float *sums = room, *repeated = room + width;
    memset(sums, 0, (size_t)width * sizeof(float));
    if (kind != ELEMENT) repeat(it, means, repeated);
    for (int64_t sample = 0; sample < it->samples; sample++, one += width, other += width) {
        LANES
        for (int64_t i = 0; i < width; i++) sums[i] += ADDEND(kind, one[i], other[i], repeated[i]);
        if (sample + 1 < it->samples && (sample + 1) % MANY_SAMPLES) continue;
        for (int64_t channel = 0; channel < it->channels; channel++)
            to[channel] += pairwise_sum(sums + channel * it->values, it->values);
        memset(sums, 0, (size_t)width * sizeof(float));
    }
}

static void channel_sums(const struct channels *it, const float *from, float *to, float *room) {
    totals(ELEMENT, it, from, from, 0, to, room);
}

static void square_sums(const struct channels *it, const float *from, const float *means, float *to, float *room) {
    totals(SQUARE, it, from, from, means, to, room);
}

static void product_sums(const struct channels *it, const float *from, const float *other, const float *means,
                         float *to, float *room) {
    totals(PRODUCT, it, from, other, means, to, room);
}

/* Elements less their mean, times a factor, and something more: other elements times another factor, or nothing; and a
 * number.  Of each channel; `room` has four samples. */
static void combine(const struct channels *it, const float *from, const float *other, const float *means,
                    const float *factors, const float *shares, const float *more, float *to, float *room) {
    const int64_t width = it->channels * it->values;
    if (!few_elements(it)) {
        for (int64_t plane = 0; plane < it->samples * it->channels; plane++) {
            const int64_t channel = plane % it->channels;
            const float mean = means[channel], factor = factors[channel], add = more[channel];
            const float share = other ? shares[channel] : 0;
            const float *one = from + plane * it->values, *two = other ? other + plane * it->values : one;
            float *result = to + plane * it->values;
            LANES
            for (int64_t i = 0; i < it->values; i++) {
                float value = (one[i] - mean) * factor;
                result[i] = (other ? value + two[i] * share : value) + add;
            }
        }
        return;
    }
    float *mean = room, *factor = mean + width, *add = factor + width, *share = add + width;
    repeat(it, means, mean);
    repeat(it, factors, factor);
    repeat(it, more, add);
    if (other) repeat(it, shares, share);
    for (int64_t sample = 0; sample < it->samples; sample++, from += width, to += width) {
        const float *two = other ? other + sample * width : from;
        LANES
        for (int64_t i = 0; i < width; i++) {
            float value = (from[i] - mean[i]) * factor[i];
            to[i] = (other ? value + two[i] * share[i] : value) + add[i];
        }
    }
}

/* How many elements of room the functions below need. */
int64_t batch_norm_room(const struct channels *it) {
    return 4 * it->channels + (few_elements(it) ? 4 * it->channels * it->values : 0);
}

/* `weight` and `bias` may be null. */
void batch_norm(const struct channels *it, const float *from, const float *weight, const float *bias, float *to,
                float *means, float *variances, float *room, float eps) {
    EXPECT((uintptr_t)it % sizeof(int64_t) == 0 && it->samples > 0 && it->channels > 0 && it->values > 0);
    EXPECT(IS_AT(from) && IS_AT(to) && IS_AT(means) && IS_AT(variances) && IS_AT(room));
    EXPECT(IS_AT_OR_NULL(weight) && IS_AT_OR_NULL(bias));
    const float count = (float)(it->samples * it->values);
    float *factors = room, *more = room + it->channels, *rest = room + 4 * it->channels;
    channel_sums(it, from, means, rest);
    for (int64_t i = 0; i < it->channels; i++) means[i] /= count;
    square_sums(it, from, means, variances, rest);
    for (int64_t i = 0; i < it->channels; i++) {
        variances[i] /= count;
        factors[i] = 1 / __builtin_sqrtf(variances[i] + eps);
        if (weight) factors[i] *= weight[i];
        more[i] = bias ? bias[i] : 0;
    }
    combine(it, from, 0, means, factors, 0, more, to, rest);
}

/* `weight` may be null. */
void batch_norm_gradient(const struct channels *it, const float *gradient, const float *from, const float *means,
                         const float *variances, const float *weight, float *to, float *by_weight, float *by_bias,
                         float *room, float eps) {
    EXPECT((uintptr_t)it % sizeof(int64_t) == 0 && it->samples > 0 && it->channels > 0 && it->values > 0);
    EXPECT(IS_AT(gradient) && IS_AT(from) && IS_AT(means) && IS_AT(variances) && IS_AT(to));
    EXPECT(IS_AT(by_weight) && IS_AT(by_bias) && IS_AT(room) && IS_AT_OR_NULL(weight));
    const float count = (float)(it->samples * it->values);
    float *factors = room, *shares = factors + it->channels, *more = shares + it->channels;
    float *rest = room + 4 * it->channels;
    channel_sums(it, gradient, by_bias, rest);
    product_sums(it, from, gradient, means, by_weight, rest);
    for (int64_t i = 0; i < it->channels; i++) {
        const float scale = 1 / __builtin_sqrtf(variances[i] + eps);
        by_weight[i] *= scale;
        shares[i] = weight ? scale * weight[i] : scale;
        factors[i] = -shares[i] * scale * by_weight[i] / count;
        more[i] = -(shares[i] * by_bias[i] / count);
    }
    combine(it, from, gradient, means, factors, shares, more, to, rest);
}
