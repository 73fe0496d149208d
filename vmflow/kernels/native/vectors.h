/* Vectors of eight float32 numbers, on any processor. */

#ifdef __AVX__
#include <immintrin.h>
#endif

typedef float eight __attribute__((vector_size(32)));
typedef int32_t flags __attribute__((vector_size(32)));
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

/* Add the sum of each vector's lanes to a number of `to`, for up to four vectors. */
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

/* The sum of 32 strands of at most 32 numbers each; longer arrays are halved first. */
static float long_sum(const float *values, int64_t n) {
    if (n < 32) return pairwise_sum(values, n);
    if (n <= 1024) {
        eight a = load(values), b = load(values + 8), c = load(values + 16), d = load(values + 24);
        int64_t i = 32;
        for (; i + 32 <= n; i += 32) {
            a += load(values + i);
            b += load(values + i + 8);
            c += load(values + i + 16);
            d += load(values + i + 24);
        }
        return across((a + b) + (c + d)) + pairwise_sum(values + i, n - i);
    }
    int64_t half = n / 2;
    half -= half % 32;
    return long_sum(values, half) + long_sum(values + half, n - half);
}

#ifdef __AVX__
#define LARGER(a, b) ((eight)_mm256_max_ps((__m256)(a), (__m256)(b)))
#else
static inline eight LARGER(eight a, eight b) {
    for (int lane = 0; lane < 8; lane++) a[lane] = a[lane] > b[lane] ? a[lane] : b[lane];
    return a;
}
#endif

/* The largest of a row without nan; with nan the result does not matter, since the sum of the exponentials is nan. */
static float largest(const float *row, int64_t n) {
    float found = row[0];
    int64_t i = 0;
    if (n >= 32) {
        eight a = load(row), b = load(row + 8), c = load(row + 16), d = load(row + 24);
        for (i = 32; i + 32 <= n; i += 32) {
            a = LARGER(a, load(row + i));
            b = LARGER(b, load(row + i + 8));
            c = LARGER(c, load(row + i + 16));
            d = LARGER(d, load(row + i + 24));
        }
        a = LARGER(LARGER(a, b), LARGER(c, d));
        for (int lane = 0; lane < 8; lane++) found = a[lane] > found ? a[lane] : found;
    }
    for (; i < n; i++) found = row[i] > found ? row[i] : found;
    return found;
}

#ifdef __AVX512F__
/* `exp_f`, to the bit, with instructions that compilers do not find: limits that let nan pass, and a power of two that is
 * applied in one operation, with one rounding. */
static inline __m512 exp_16(__m512 x) {
    const __m512 shift = _mm512_set1_ps(12582912.0f);
    x = _mm512_min_ps(_mm512_set1_ps(89.0f), _mm512_max_ps(_mm512_set1_ps(-105.0f), x));
    const __m512 power = _mm512_sub_ps(_mm512_fmadd_ps(x, _mm512_set1_ps(1.442695040888963407f), shift), shift);
    __m512 rest = _mm512_fmadd_ps(power, _mm512_set1_ps(-6.93145752e-1f), x);
    rest = _mm512_fmadd_ps(power, _mm512_set1_ps(-1.42860677e-6f), rest);
    __m512 series = _mm512_fmadd_ps(_mm512_set1_ps(1.38145400e-3f), rest, _mm512_set1_ps(8.36874511e-3f));
    series = _mm512_fmadd_ps(series, rest, _mm512_set1_ps(4.16683908e-2f));
    series = _mm512_fmadd_ps(series, rest, _mm512_set1_ps(1.66665204e-1f));
    series = _mm512_fmadd_ps(series, rest, _mm512_set1_ps(4.99999934e-1f));
    series = _mm512_fmadd_ps(series, rest, _mm512_set1_ps(1.0f));
    series = _mm512_fmadd_ps(series, rest, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(series, power);
}
#endif

/* to[i] = exp(row[i] - most) for i < n. */
static inline void exponentials(const float *row, float most, float *to, int64_t n) {
#ifdef __AVX512F__
    const __m512 offset = _mm512_set1_ps(most);
    for (; n >= 16; n -= 16, row += 16, to += 16)
        _mm512_storeu_ps(to, exp_16(_mm512_sub_ps(_mm512_loadu_ps(row), offset)));
    const __mmask16 left = (__mmask16)((1 << n) - 1);
    _mm512_mask_storeu_ps(to, left, exp_16(_mm512_sub_ps(_mm512_maskz_loadu_ps(left, row), offset)));
#else
    LANES
    for (int64_t i = 0; i < n; i++) to[i] = exp_f(row[i] - most);
#endif
}
