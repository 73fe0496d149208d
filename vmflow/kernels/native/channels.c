/* Batch norm of float32: (samples, channels, values), each channel normalised over samples and values.
 *
 * If a sample has few elements, the loops run over whole samples: each element is summed over the samples, and the numbers
 * of the channels are repeated for each element.  Otherwise the loops run over the values of a channel.
 */

enum { FEW_ELEMENTS = 1 << 13 };

/* Sums over more samples than this would lose digits, so after so many samples the sums are added to the totals. */
enum { MANY_SAMPLES = 128 };

struct channels {
    int64_t samples, channels, values;
};

/* The addends: elements, squares of their distance from the mean, or products of that distance and another element. */
enum { ELEMENT, SQUARE, PRODUCT };

#define ADDEND(kind, x, y, mean) ((kind) == ELEMENT ? (x) : ((x) - (mean)) * ((kind) == SQUARE ? (x) - (mean) : (y)))

static int few_elements(const struct channels *op) {
    return op->channels * op->values <= FEW_ELEMENTS;
}

/* Repeat the number of each channel for each element of a sample. */
static void repeat(const struct channels *op, const float *numbers, float *to) {
    for (int64_t channel = 0; channel < op->channels; channel++)
        for (int64_t i = 0; i < op->values; i++) *to++ = numbers[channel];
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

/* The totals of all channels; `scratch` has the size of two samples. */
static inline __attribute__((always_inline)) void totals(const int kind, const struct channels *op, const float *one,
                                                         const float *other, const float *means, float *to,
                                                         float *scratch) {
    const int64_t width = op->channels * op->values;
    memset(to, 0, (size_t)op->channels * sizeof(float));
    if (!few_elements(op)) {
        for (int64_t plane = 0; plane < op->samples * op->channels; plane++, one += op->values, other += op->values)
            to[plane % op->channels] +=
                plane_total(kind, one, other, kind == ELEMENT ? 0 : means[plane % op->channels], op->values);
        return;
    }
    float *sums = scratch, *repeated = scratch + width;
    memset(sums, 0, (size_t)width * sizeof(float));
    if (kind != ELEMENT) repeat(op, means, repeated);
    for (int64_t sample = 0; sample < op->samples; sample++, one += width, other += width) {
        LANES
        for (int64_t i = 0; i < width; i++) sums[i] += ADDEND(kind, one[i], other[i], repeated[i]);
        if (sample + 1 < op->samples && (sample + 1) % MANY_SAMPLES) continue;
        for (int64_t channel = 0; channel < op->channels; channel++)
            to[channel] += pairwise_sum(sums + channel * op->values, op->values);
        memset(sums, 0, (size_t)width * sizeof(float));
    }
}

static void channel_sums(const struct channels *op, const float *from, float *to, float *scratch) {
    totals(ELEMENT, op, from, from, 0, to, scratch);
}

static void square_sums(const struct channels *op, const float *from, const float *means, float *to, float *scratch) {
    totals(SQUARE, op, from, from, means, to, scratch);
}

static void product_sums(const struct channels *op, const float *from, const float *other, const float *means,
                         float *to, float *scratch) {
    totals(PRODUCT, op, from, other, means, to, scratch);
}

/* (from - mean) * factor + other * share + more, by channel; without `other` there is no second product.  `scratch` has the size
 * of four samples. */
static void combine(const struct channels *op, const float *from, const float *other, const float *means,
                    const float *factors, const float *shares, const float *more, float *to, float *scratch) {
    const int64_t width = op->channels * op->values;
    if (!few_elements(op)) {
        for (int64_t plane = 0; plane < op->samples * op->channels; plane++) {
            const int64_t channel = plane % op->channels;
            const float mean = means[channel], factor = factors[channel], add = more[channel];
            const float share = other ? shares[channel] : 0;
            const float *one = from + plane * op->values, *two = other ? other + plane * op->values : one;
            float *result = to + plane * op->values;
            LANES
            for (int64_t i = 0; i < op->values; i++) {
                float value = (one[i] - mean) * factor;
                result[i] = (other ? value + two[i] * share : value) + add;
            }
        }
        return;
    }
    float *mean = scratch, *factor = mean + width, *add = factor + width, *share = add + width;
    repeat(op, means, mean);
    repeat(op, factors, factor);
    repeat(op, more, add);
    if (other) repeat(op, shares, share);
    for (int64_t sample = 0; sample < op->samples; sample++, from += width, to += width) {
        const float *two = other ? other + sample * width : from;
        LANES
        for (int64_t i = 0; i < width; i++) {
            float value = (from[i] - mean[i]) * factor[i];
            to[i] = (other ? value + two[i] * share[i] : value) + add[i];
        }
    }
}

/* The elements of scratch memory that the functions below need. */
int64_t batch_norm_scratch(const struct channels *op) {
    return 4 * op->channels + (few_elements(op) ? 4 * op->channels * op->values : 0);
}

/* `weight` and `bias` may be null. */
void batch_norm(const struct channels *op, const float *from, const float *weight, const float *bias, float *to,
                float *means, float *variances, float *scratch, float eps) {
    EXPECT((uintptr_t)op % sizeof(int64_t) == 0 && op->samples > 0 && op->channels > 0 && op->values > 0);
    EXPECT(IS_AT(from) && IS_AT(to) && IS_AT(means) && IS_AT(variances) && IS_AT(scratch));
    EXPECT(IS_AT_OR_NULL(weight) && IS_AT_OR_NULL(bias));
    const float count = (float)(op->samples * op->values);
    float *factors = scratch, *more = scratch + op->channels, *rest = scratch + 4 * op->channels;
    channel_sums(op, from, means, rest);
    for (int64_t i = 0; i < op->channels; i++) means[i] /= count;
    square_sums(op, from, means, variances, rest);
    for (int64_t i = 0; i < op->channels; i++) {
        variances[i] /= count;
        factors[i] = 1 / __builtin_sqrtf(variances[i] + eps);
        if (weight) factors[i] *= weight[i];
        more[i] = bias ? bias[i] : 0;
    }
    combine(op, from, 0, means, factors, 0, more, to, rest);
}

/* `weight` may be null. */
void batch_norm_gradient(const struct channels *op, const float *gradient, const float *from, const float *means,
                         const float *variances, const float *weight, float *to, float *by_weight, float *by_bias,
                         float *scratch, float eps) {
    EXPECT((uintptr_t)op % sizeof(int64_t) == 0 && op->samples > 0 && op->channels > 0 && op->values > 0);
    EXPECT(IS_AT(gradient) && IS_AT(from) && IS_AT(means) && IS_AT(variances) && IS_AT(to));
    EXPECT(IS_AT(by_weight) && IS_AT(by_bias) && IS_AT(scratch) && IS_AT_OR_NULL(weight));
    const float count = (float)(op->samples * op->values);
    float *factors = scratch, *shares = factors + op->channels, *more = shares + op->channels;
    float *rest = scratch + 4 * op->channels;
    channel_sums(op, gradient, by_bias, rest);
    product_sums(op, from, gradient, means, by_weight, rest);
    for (int64_t i = 0; i < op->channels; i++) {
        const float scale = 1 / __builtin_sqrtf(variances[i] + eps);
        by_weight[i] *= scale;
        shares[i] = weight ? scale * weight[i] : scale;
        factors[i] = -shares[i] * scale * by_weight[i] / count;
        more[i] = -(shares[i] * by_bias[i] / count);
    }
    combine(op, from, gradient, means, factors, shares, more, to, rest);
}
