/* What all kernels share: functions of one element that the compiler can put into the lanes of a vector.
 *
 * No branches, no calls, no tables, and divisions only where there is no way around them.  What is not said to be exact is
 * within 3 units in the last place (exp and log within 1, with FMA); what is gives the results of numpy to the bit.
 */

#include <stdint.h>
#include <string.h>

/* What functions take for granted, since whoever calls them has checked it.  In builds with VMFLOW_CHECKS, which are for tests,
 * they look themselves, and end the process by telling what was wrong. */
#ifdef VMFLOW_CHECKS
#include <stdio.h>
#include <stdlib.h>
#define EXPECT(what)                                                                                                           \
    do {                                                                                                                       \
        if (!(what)) {                                                                                                         \
            fprintf(stderr, "vmflow: %s was called with what it does not take; expected %s\n", __func__, #what);               \
            abort();                                                                                                           \
        }                                                                                                                      \
    } while (0)
#else
#define EXPECT(what) ((void)0)
#endif

/* Whether elements of this type may be read from there. */
#define IS_AT(from) ((from) != NULL && (uintptr_t)(from) % sizeof *(from) == 0)
#define IS_AT_OR_NULL(from) ((from) == NULL || IS_AT(from))

#if defined(__clang__)
#define LANES _Pragma("clang loop vectorize(assume_safety)")
#else
#define LANES _Pragma("GCC ivdep")
#endif

#define ALWAYS static inline __attribute__((always_inline)) void

/* Loops over elements go through blocks of so many, and ask at each for what lies so many bytes ahead: processors find out by
 * themselves what comes next, but where there is much to compute with it, too late. */
enum { BLOCK = 64, AHEAD = 2048, CACHE_LINE = 64 };

static inline __attribute__((always_inline)) void will_read(const void *from, int64_t nbytes) {
    for (int64_t i = 0; i < nbytes; i += CACHE_LINE) __builtin_prefetch((const char *)from + AHEAD + i, 0);
}

static inline __attribute__((always_inline)) void will_write(const void *to, int64_t nbytes) {
    for (int64_t i = 0; i < nbytes; i += CACHE_LINE) __builtin_prefetch((const char *)to + AHEAD + i, 1);
}

/* What is too large to be found in the cache again is better written past it, in whole blocks: else each line is read before
 * it is written.  `streamed` is to be called behind the last of them. */
#if defined(__SSE2__)
#define STREAMS
#include <immintrin.h>
static inline void stream(void *to, const void *from, int64_t nbytes) {
#if defined(__AVX__)
    for (int64_t i = 0; i < nbytes; i += 32)
        _mm256_stream_si256((__m256i *)((char *)to + i), _mm256_load_si256((const __m256i *)((const char *)from + i)));
#else
    for (int64_t i = 0; i < nbytes; i += 16)
        _mm_stream_si128((__m128i *)((char *)to + i), _mm_load_si128((const __m128i *)((const char *)from + i)));
#endif
}
static inline void streamed(void) { _mm_sfence(); }
#endif

/* Only where these approximations say so: elsewhere a product and a sum stay two operations. */
#ifdef __FMA__
#define FMA(a, b, c) __builtin_fmaf(a, b, c)
#else
#define FMA(a, b, c) ((a) * (b) + (c))
#endif

#define INF __builtin_inff()

static inline float of_bits(int32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline int32_t bits_of(float value) {
    int32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* A polynomial times a power of two, in two steps, so that the result is rounded once also where it is denormal.
 *
 * Beyond the limits the steps end at 0 or infinity by themselves.  It is bits that are limited and not numbers: of those
 * compilers make two comparisons and choices each, and more where two limits follow each other. */
static inline float exp_f(float x) {
    const float shift = 12582912.0f;
    uint32_t bits = (uint32_t)bits_of(x);
    const uint32_t least = (uint32_t)bits_of(-105.0f);
    bits = bits < least ? bits : least;
    const int32_t most = bits_of(89.0f);
    int32_t limited = (int32_t)bits < most ? (int32_t)bits : most;
    float within = of_bits(limited);
    float shifted = FMA(within, 1.442695040888963407f, shift);
    float power = shifted - shift;
    float rest = FMA(power, -6.93145752e-1f, within);
    rest = FMA(power, -1.42860677e-6f, rest);
    float series = FMA(1.38145400e-3f, rest, 8.36874511e-3f);
    series = FMA(series, rest, 4.16683908e-2f);
    series = FMA(series, rest, 1.66665204e-1f);
    series = FMA(series, rest, 4.99999934e-1f);
    series = FMA(series, rest, 1.0f);
    series = FMA(series, rest, 1.0f);
    int32_t whole = bits_of(shifted) - (bits_of(shift) - 254);
    int32_t half = whole >> 1;
    float result = series * of_bits(half << 23) * of_bits((whole - half) << 23);
    return x == x ? result : x;
}

/* From x = fraction * 2 ** power, with a fraction about 1, whose logarithm is a polynomial. */
static inline float log_f(float x) {
    const int32_t least = 0x3f3504f3; /* sqrt(1 / 2) */
    int32_t tiny = x < 1.17549435e-38f;
    int32_t above = bits_of(tiny ? x * 33554432.0f : x) - least;
    float power = (float)((above >> 23) - (tiny ? 25 : 0));
    float rest = of_bits((above & 0x7fffff) + least) - 1.0f;
    float series = FMA(-7.63449824e-2f, rest, 1.27615777e-1f);
    series = FMA(series, rest, -1.31601832e-1f);
    series = FMA(series, rest, 1.42017579e-1f);
    series = FMA(series, rest, -1.66233574e-1f);
    series = FMA(series, rest, 2.00012269e-1f);
    series = FMA(series, rest, -2.50008210e-1f);
    series = FMA(series, rest, 3.33333317e-1f);
    series = FMA(series, rest, -0.5f);
    series = FMA(power, 1.42860677e-6f, series * (rest * rest));
    float result = FMA(power, 6.93145752e-1f, rest + series);
    result = x < INF ? result : x;
    /* All bits of what is negative make it nan. */
    result = of_bits(bits_of(result) | bits_of(x) >> 31);
    return x == 0.0f ? -INF : result;
}

/* (exp(x) - 1) / 2 from (2 ** k - 1) + 2 ** k * (exp(rest) - 1), for x between -18 and 89.
 *
 * Half of it, since 2 ** 128 is no float. */
static inline float half_of_expm1(float x) {
    const float shift = 12582912.0f;
    float shifted = FMA(x, 1.442695040888963407f, shift);
    float power = shifted - shift;
    float rest = FMA(power, -6.93145752e-1f, x);
    rest = FMA(power, -1.42860677e-6f, rest);
    float series = FMA(1.38706561e-3f, rest, 8.36626161e-3f);
    series = FMA(series, rest, 4.16674353e-2f);
    series = FMA(series, rest, 1.66665465e-1f);
    series = FMA(series, rest, 4.99999970e-1f);
    float small = FMA(series * rest, rest, rest);
    float half = of_bits((int32_t)((uint32_t)bits_of(shifted) << 23) + (126 << 23));
    return FMA(small, half, half - 0.5f);
}

/* As in `exp_f` it is bits that are limited.  What is next to 0 is its own result, and so are nan and -0. */
static inline float expm1_f(float x) {
    uint32_t bits = (uint32_t)bits_of(x);
    const uint32_t least = (uint32_t)bits_of(-18.0f);
    bits = bits < least ? bits : least;
    const int32_t most = bits_of(89.0f);
    int32_t limited = (int32_t)bits < most ? (int32_t)bits : most;
    float result = half_of_expm1(of_bits(limited)) * 2.0f;
    return __builtin_fabsf(x) > 1e-8f ? result : x;
}

/* log(1 + x): what the sum has lost is put back in the first order. */
static inline float log1p_f(float x) {
    float sum = 1.0f + x;
    float lost = x - (sum - 1.0f);
    float result = log_f(sum) + lost / sum;
    float near = x * (1.0f + x * (-0.5f + x * 0.333333333f));
    result = (x > -1e-3f) & (x < 1e-3f) ? near : result;
    result = x == INF ? x : result;
    result = x == 0.0f ? x : result;
    result = x == -1.0f ? -INF : result;
    return result;
}

/* half / (half + 1), where half is (exp(2 * x) - 1) / 2; of x without its sign, which is put on again. */
static inline float tanh_f(float x) {
    int32_t size = bits_of(x) & 0x7fffffff;
    const int32_t most = bits_of(10.0f);
    float half = half_of_expm1(2.0f * of_bits(size < most ? size : most));
    float result = half / (half + 1.0f);
    result = of_bits(bits_of(result) | (bits_of(x) & (int32_t)0x80000000));
    return x == x ? result : x;
}

/* Exact, as are the three that follow: see vmflow/ops/normal_kernels.py, where the coefficients are explained. */
static inline float minus_eighth_power(float x) {
    x = x * x;
    x = x * x;
    x = x * x;
    return 1.0f / x;
}

static inline float erf_f(float x) {
    const float border = 1.0940218f;
    float size = __builtin_fabsf(x);
    float near = size < border ? size : border;
    near = size != size ? size : near;
    float beyond = size - near;
    float power = 0.000607183902f;
    power = power * beyond + -0.000130182932f;
    power = power * beyond + 0.00564338034f;
    power = power * beyond + 0.0167339444f;
    power = power * beyond + 0.064245142f;
    power = power * beyond + 0.218519896f;
    power = power * beyond + 0.455127895f;
    power = power * beyond + 1.30102396f;
    power = minus_eighth_power(1.30102396f) - minus_eighth_power(power);
    float square = near * near;
    float series = 7.22230907e-05f;
    series = series * square + -0.000781729934f;
    series = series * square + 0.00516630197f;
    series = series * square + -0.0268422663f;
    series = series * square + 0.112833127f;
    series = series * square + -0.376126021f;
    series = series * square + 0.128379166f;
    return __builtin_copysignf((series * near + near) + power, x);
}

/* The -8th root of twice the tail of the normal distribution, of the distance from 0. */
static inline float tail(float size) {
    float power = 6.65116261e-07f;
    power = power * size + -6.69397014e-06f;
    power = power * size + 4.01382604e-05f;
    power = power * size + -8.02558643e-05f;
    power = power * size + 0.000429718901f;
    power = power * size + 0.000651116658f;
    power = power * size + 0.00878046267f;
    power = power * size + 0.0447356589f;
    power = power * size + 0.0997378379f;
    power = power * size + 1.0f;
    return minus_eighth_power(power);
}

static inline float limited_size(float x) {
    float size = __builtin_fabsf(x);
    return size > 1e5f ? 1e5f : size;
}

static inline float gelu_f(float x) {
    float size = limited_size(x);
    float power = tail(size) * size * 0.5f;
    float positive = (x > 0.0f) | (x != x) ? x : 0.0f;
    return positive - power;
}

static inline float gelu_gradient_f(float gradient, float x) {
    float density = exp_f(x * x * -0.5f) * 0.3989422804014327f;
    float size = limited_size(x);
    density = density * size;
    float power = 0.5f - tail(size) * 0.5f + density;
    return (__builtin_copysignf(power, x) + 0.5f) * gradient;
}

static inline float sigmoid_f(float x) {
    return 1.0f / (exp_f(-x) + 1.0f);
}

static inline float silu_f(float x) {
    return x / (exp_f(-x) + 1.0f);
}
