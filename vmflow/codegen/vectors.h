/* Eight numbers of float32 at once, on whatever vectors the processor has. */

#ifdef __AVX__
#include <immintrin.h>
#endif

typedef float eight __attribute__((vector_size(32)));
typedef float four __attribute__((vector_size(16)));

static inline eight load(const float *from) {
    eight values;
    memcpy(&values, from, sizeof values);
    return values;
}

static inline void store(float *to, eight values) {
    memcpy(to, &values, sizeof values);
}

static inline eight all(float value) {
    return (eight){value, value, value, value, value, value, value, value};
}

static inline float across(eight r) {
    return ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
}

/* a * b + c, rounded once where the processor can. */
#if defined(__FMA__) && defined(__AVX__)
#define FMA8(a, b, c) ((eight)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
#else
#define FMA8(a, b, c) ((a) * (b) + (c))
#endif

/* The sums of up to four vectors, added to as many numbers. */
static inline __attribute__((always_inline)) void add_across(float *to, const int count, const eight *vectors) {
#ifdef __AVX__
    __m256 r[4];
    for (int i = 0; i < 4; i++) r[i] = i < count ? (__m256)vectors[i] : _mm256_setzero_ps();
    __m256 pairs = _mm256_hadd_ps(_mm256_hadd_ps(r[0], r[1]), _mm256_hadd_ps(r[2], r[3]));
    float sums[4];
    _mm_storeu_ps(sums, _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps(pairs, 1)));
    for (int i = 0; i < count; i++) to[i] += sums[i];
#else
    for (int i = 0; i < count; i++) to[i] += across(vectors[i]);
#endif
}

static float pairwise_sum(const float *values, int64_t n) {
    if (n < 8) {
        float sum = 0;
        for (int64_t i = 0; i < n; i++) sum += values[i];
        return sum;
    }
    if (n <= 128) {
        eight lanes = load(values);
        int64_t i = 8;
        for (; i + 8 <= n; i += 8) lanes += load(values + i);
        float sum = across(lanes);
        for (; i < n; i++) sum += values[i];
        return sum;
    }
    int64_t half = n / 2;
    half -= half % 8;
    return pairwise_sum(values, half) + pairwise_sum(values + half, n - half);
}

/* Of a row without nan; with one it is of no importance, since the sum of the exponentials is nan. */
static float largest(const float *row, int64_t n) {
    float found = row[0];
    int64_t i = 0;
    if (n >= 8) {
        float most[8];
        memcpy(most, row, sizeof most);
        for (i = 8; i + 8 <= n; i += 8)
            for (int lane = 0; lane < 8; lane++) most[lane] = row[i + lane] > most[lane] ? row[i + lane] : most[lane];
        for (int lane = 0; lane < 8; lane++) found = most[lane] > found ? most[lane] : found;
    }
    for (; i < n; i++) found = row[i] > found ? row[i] : found;
    return found;
}

static inline void exponentials(const float *row, float most, float *to, int64_t n) {
    LANES
    for (int64_t i = 0; i < n; i++) to[i] = exp_f(row[i] - most);
}
